// scaled_read_out: out[j - first] = sum over all trees of a factor of the row and tree times the table row of j's leaf.
// residual_factors: the factors of removal, (draw * (residual - level)) of each row and tree, as boosting goes on.
//
// A read-out whose trees count differently from row to row: several rows are summed in registers together, over a few
// trees at a time, whose part of the table stays in the nearest caches.
#include <vector>

#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace scaling {

constexpr std::size_t block_rows = 256, some_trees = 8;
constexpr std::size_t most_chunks = 4096, least_work = 300000;  // look-ups worth handing to a thread

template <class Leaf>
struct Job {
    std::vector<Tile> tiles;
    std::vector<Tree<Leaf>> trees;  // (tiles, trees)
    std::size_t n_trees, columns, first, rows;
    const double* factors;  // (trees, rows)
    double* out;
};

// Add the trees from .. to - 1 to the sums of R rows of a tile.
template <std::size_t C, std::size_t W, std::size_t R, class Leaf>
AXIL_INLINE void add_trees(const Job<Leaf>& job, const Tree<Leaf>* trees, std::size_t from, std::size_t to,
                           std::size_t row, double* sums) {
    using Row = Vectors<C, W>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    V total[R * n];
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) total[i] = load<V>(sums + i * Row::lanes);
    for (std::size_t t = from; t < to; ++t) {
        const Leaf* leaves = trees[t].leaves + job.first + row;
        const double* factors = job.factors + t * job.rows + row;
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            const double* entry = trees[t].entries + leaves[r] * C;
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i)
                total[r * n + i] += load<V>(entry + i * Row::lanes) * factors[r];
        }
    }
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) store(sums + i * Row::lanes, total[i]);
}

template <std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void tile(const Job<Leaf>& job, std::size_t number, std::size_t begin, std::size_t end) {
    constexpr std::size_t R = Vectors<C, W>::rows;
    const Tile& tile = job.tiles[number];
    const Tree<Leaf>* trees = job.trees.data() + number * job.n_trees;
    const std::size_t n = end - begin;
    double sums[block_rows * C];
    std::fill(sums, sums + n * C, 0.0);
    for (std::size_t from = 0; from < job.n_trees; from += some_trees) {
        const std::size_t to = std::min(from + some_trees, job.n_trees);
        std::size_t r = 0;
        for (; r + R <= n; r += R) add_trees<C, W, R>(job, trees, from, to, begin + r, sums + r * C);
        for (; r < n; ++r) add_trees<C, W, 1>(job, trees, from, to, begin + r, sums + r * C);
    }
    for (std::size_t r = 0; r < n; ++r)
        std::copy_n(sums + r * C, tile.used, job.out + (begin + r) * job.columns + tile.column);
}

template <std::size_t W, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end) {
    for (; begin < end; begin += block_rows) {
        const std::size_t stop = std::min(begin + block_rows, end);
        for (std::size_t i = 0; i < job.tiles.size(); ++i)
            by_width(job.tiles[i], [&job, i, begin, stop](auto width)
                                       AXIL_INLINE_LAMBDA { tile<width.value, W>(job, i, begin, stop); });
    }
}

using Size = std::size_t;
#define AXIL_CHUNK(LEAF) AXIL_VERSIONS(chunk, (const Job<LEAF>& job, Size begin, Size end), (job, begin, end))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

}  // namespace scaling

template <class Leaf>
void scaled_read_out(const Leaves<Leaf>& leaves, const double* table, std::size_t columns, const double* factors,
                     std::size_t first, std::size_t rows, double* out, const Crew& crew) {
    if (columns == 0) return;
    using namespace scaling;
    const auto tiles = tiles_of(columns, true);
    const Buffer packed(leaves.total() * padded_columns(tiles));
    pack(table, leaves.total(), columns, tiles, packed.get(), leaves.total(), 0);
    Group<Leaf> group;
    for (std::size_t t = 0; t < leaves.trees; ++t) group.add(leaves, t);
    const Job<Leaf> job{tiles, trees_by_tile(group, tiles, packed.get()), leaves.trees, columns, first, rows, factors,
                        out};
    const Chunks chunks(rows, least_work / std::max<Size>(leaves.trees * columns, 1), most_chunks);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) { chunk(job, chunks.begin(i), chunks.end(i)); });
}

template <class Leaf>
void residual_factors(const Leaves<Leaf>& leaves, const double* steps, const double* levels, const double* draws,
                      const double* start, std::size_t first, std::size_t rows, double* out, const Crew& crew) {
    using namespace scaling;
    const Chunks chunks(rows, std::max<Size>(least_work / std::max<Size>(leaves.trees, 1), block_rows), most_chunks);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
        double residuals[block_rows];
        const std::size_t end = chunks.end(i);
        for (std::size_t begin = chunks.begin(i); begin < end; begin += block_rows) {
            const std::size_t n = std::min(block_rows, end - begin);
            std::copy_n(start + begin, n, residuals);
            for (std::size_t t = 0; t < leaves.trees; ++t) {
                const Leaf* leaf = leaves.tree(t) + first + begin;
                const std::size_t at = leaves.start(t);
                double* factor = out + t * rows + begin;
                for (std::size_t j = 0; j < n; ++j) {
                    const std::size_t cell = at + leaf[j];
                    factor[j] = draws[cell] * (residuals[j] - levels[cell]);
                    residuals[j] -= steps[cell];
                }
            }
        }
    });
}

AXIL_INSTANTIATE(scaled_read_out)
AXIL_INSTANTIATE(residual_factors)

}  // namespace axil
