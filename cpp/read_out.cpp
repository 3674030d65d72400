// read_out: out[j - first] = w_j * (constant + sum over all trees of the table row of j's leaf).
//
// Bound by look-ups: several rows are summed in registers together, over a few trees at a time, whose part of the table
// stays in the nearest caches.
#include <vector>

#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace reading {

// Measured. A block's sums and its part of the output stay in the second-level cache; more trees at a time would need
// more pages than the first-level TLB holds.
constexpr std::size_t least_rows = 64, most_rows = 2048, out_bytes = 1 << 20;
constexpr std::size_t least_trees = 4, most_trees = 12, tree_bytes = 48 << 10;
constexpr std::size_t most_chunks = 4096, least_work = 300000;  // look-ups worth handing to a thread

template <class Leaf>
struct Job {
    std::vector<Tile> tiles;
    std::vector<Tree<Leaf>> trees;  // (tiles, trees)
    std::size_t n_trees, columns, block_rows;
    const std::int64_t* starts;
    const double* constant;  // padded to whole tiles
    const double* weights;
    std::size_t first;
    double* out;
};

// Add some trees to the sums of R rows of a tile.
template <std::size_t C, std::size_t W, std::size_t R, class Leaf>
AXIL_INLINE void add_trees(const Tree<Leaf>* tree, const Tree<Leaf>* end, std::size_t row, double* sums) {
    using Row = Vectors<C, W>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    V total[R * n];
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) total[i] = load<V>(sums + i * Row::lanes);
    for (; tree != end; ++tree) {
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            const double* entry = tree->entries + tree->leaves[row + r] * C;
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) total[r * n + i] += load<V>(entry + i * Row::lanes);
        }
    }
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) store(sums + i * Row::lanes, total[i]);
}

// The end of the trees to add together with tree `from`: those with so many leaves, within limits.
template <class Leaf>
AXIL_INLINE std::size_t trees_together(const Job<Leaf>& job, std::size_t from, std::size_t n_leaves) {
    const auto end = job.starts[from] + static_cast<std::int64_t>(n_leaves);
    std::size_t to = std::min(from + least_trees, job.n_trees);
    while (to < std::min(from + most_trees, job.n_trees) && job.starts[to + 1] <= end) ++to;
    return to;
}

// One tile of C columns of a block of rows; `sums` has room for it.
template <std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void tile(const Job<Leaf>& job, std::size_t number, std::size_t begin, std::size_t end, double* sums) {
    constexpr std::size_t R = Vectors<C, W>::rows;
    const Tile& tile = job.tiles[number];
    const Tree<Leaf>* trees = job.trees.data() + number * job.n_trees;
    const std::size_t n = end - begin;
    for (std::size_t r = 0; r < n; ++r) std::copy_n(job.constant + tile.column, C, sums + r * C);

    for (std::size_t from = 0, to; from < job.n_trees; from = to) {
        to = trees_together(job, from, tree_bytes / sizeof(double) / C);
        std::size_t r = 0;
        for (; r + R <= n; r += R) add_trees<C, W, R>(trees + from, trees + to, begin + r, sums + r * C);
        for (; r < n; ++r) add_trees<C, W, 1>(trees + from, trees + to, begin + r, sums + r * C);
    }

    double* out = job.out + (begin - job.first) * job.columns + tile.column;
    for (std::size_t r = 0; r < n; ++r) {
        const double weight = job.weights ? job.weights[begin + r] : 1.0;
        for (std::size_t c = 0; c < tile.used; ++c) out[r * job.columns + c] = weight * sums[r * C + c];
    }
}

template <std::size_t W, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end, double* sums) {
    const std::size_t rows = end - begin, n_blocks = std::max<std::size_t>(rows / job.block_rows, 1);
    const std::size_t step = (rows + n_blocks - 1) / n_blocks;
    for (; begin < end; begin += step) {
        const std::size_t stop = std::min(begin + step, end);
        for (std::size_t i = 0; i < job.tiles.size(); ++i) switch (job.tiles[i].width) {
                case 16: tile<16, W>(job, i, begin, stop, sums); break;
                case 8: tile<8, W>(job, i, begin, stop, sums); break;
                case 4: tile<4, W>(job, i, begin, stop, sums); break;
                case 2: tile<2, W>(job, i, begin, stop, sums); break;
                default: tile<1, W>(job, i, begin, stop, sums);
            }
    }
}

using Size = std::size_t;
AXIL_VERSIONS(chunk, (const Job<std::uint8_t>& job, Size begin, Size end, double* sums), (job, begin, end, sums))
AXIL_VERSIONS(chunk, (const Job<std::uint16_t>& job, Size begin, Size end, double* sums), (job, begin, end, sums))
AXIL_VERSIONS(chunk, (const Job<std::uint32_t>& job, Size begin, Size end, double* sums), (job, begin, end, sums))

}  // namespace reading

template <class Leaf>
void read_out(const Leaves<Leaf>& leaves, const double* table, std::size_t columns, const double* constant,
              const double* weights, std::size_t first, std::size_t rows, double* out, const Crew& crew) {
    if (columns == 0) return;
    using namespace reading;
    const auto tiles = tiles_of(columns, true);
    const std::size_t padded = padded_columns(tiles), total = leaves.total();
    const Buffer table_tiles(total * padded), constant_tiles(padded);
    pack(table, total, columns, tiles, table_tiles.get(), total, 0);
    pack(constant, 1, columns, tiles, constant_tiles.get(), 1, 0);

    Group<Leaf> group;
    for (std::size_t t = 0; t < leaves.trees; ++t) group.add(leaves, t);
    const std::size_t block_rows = std::clamp(out_bytes / sizeof(double) / columns / 64 * 64, least_rows, most_rows);
    const Job<Leaf> job{tiles, trees_by_tile(group, tiles, table_tiles.get()), leaves.trees, columns, block_rows,
                        leaves.starts, constant_tiles.get(), weights, first, out};
    const std::size_t work = std::max<std::size_t>(leaves.trees * columns, 1);  // of a row
    const Chunks chunks(rows, std::max(block_rows, least_work / work), most_chunks);
    const std::size_t room = 2 * block_rows * widest;  // a block has fewer than twice block_rows rows
    const Buffer sums(std::min(crew.n_threads, chunks.count()) * room);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
        chunk(job, first + chunks.begin(i), first + chunks.end(i), sums.get() + thread * room);
    });
}

template void read_out(const Leaves<std::uint8_t>&, const double*, std::size_t, const double*, const double*,
                       std::size_t, std::size_t, double*, const Crew&);
template void read_out(const Leaves<std::uint16_t>&, const double*, std::size_t, const double*, const double*,
                       std::size_t, std::size_t, double*, const Crew&);
template void read_out(const Leaves<std::uint32_t>&, const double*, std::size_t, const double*, const double*,
                       std::size_t, std::size_t, double*, const Crew&);

}  // namespace axil
