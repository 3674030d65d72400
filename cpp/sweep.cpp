// sweep: state[j] += a_j * sum of the applied trees' table rows; then leaf sums of g_j * state[j] for other trees.
//
// The state streams through once, in blocks of rows that stay in the first-level cache while its column tiles are
// worked on. Table and partial sums are kept tile by tile, so that a leaf's entry is whole cache lines.
#include <vector>

#include "kernels.hpp"
#include "lookups.hpp"
#include "tiles.hpp"

namespace axil {
namespace sweeping {

constexpr std::size_t block_bytes = 16 << 10, least_block = 16, most_block = 32;  // measured
constexpr std::size_t most_chunks = 128, least_rows = 4096, rows_per_leaf = 16;

template <class Leaf>
struct Job {
    std::vector<Tile> tiles;
    Group<Leaf> apply, gather;
    std::vector<Tree<Leaf>> table;  // (tiles, applied trees)
    double* state;
    std::size_t columns, block_rows;
    const double *apply_weights, *gather_weights;
};

// One tile's columns in the trees of the two lists.
template <class Leaf>
struct Trees {
    const Tree<Leaf>*apply, *apply_end, *gather, *gather_end;
};

// Rows begin .. begin + R - 1 of one tile of C columns.
template <std::size_t C, std::size_t W, std::size_t R, class Leaf>
AXIL_INLINE void rows(const Job<Leaf>& job, const Trees<Leaf>& trees, std::size_t column, std::size_t begin) {
    using Row = Vectors<C, W>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    V total[R * n] = {};
    for (auto tree = trees.apply; tree != trees.apply_end; ++tree) {
        const Numbers<R, Leaf> leaf(tree->leaves + begin);
        const double* entries = tree->entries;
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            const double* entry = entries + leaf[r] * C;
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) total[r * n + i] += load<V>(entry + i * Row::lanes);
        }
    }
    AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
        const double a = job.apply_weights ? job.apply_weights[begin + r] : 1.0;
        const double g = job.gather_weights ? job.gather_weights[begin + r] : 1.0;
        double* state = job.state + (begin + r) * job.columns + column;
        AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
            double* place = state + i * Row::lanes;
            const V updated = load<V>(place) + total[r * n + i] * a;
            store(place, updated);
            AXIL_PREFETCH(place + job.block_rows * job.columns);  // wide rows defeat the hardware's own prefetching
            total[r * n + i] = updated * g;
        }
    }
    for (auto tree = trees.gather; tree != trees.gather_end; ++tree) {
        const Numbers<R, Leaf> leaf(tree->leaves + begin);  // all before the first store, which might change them
        double* entries = tree->entries;
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            double* entry = entries + leaf[r] * C;
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) {
                double* place = entry + i * Row::lanes;
                store(place, load<V>(place) + total[r * n + i]);
            }
        }
    }
}

template <std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void tile(const Job<Leaf>& job, const Trees<Leaf>& trees, std::size_t column, std::size_t begin,
                      std::size_t end) {
    constexpr std::size_t R = Vectors<C, W>::rows;
    for (; begin + R <= end; begin += R) rows<C, W, R>(job, trees, column, begin);
    for (; begin < end; ++begin) rows<C, W, 1>(job, trees, column, begin);
}

// One chunk of rows; `sums` are its own partial sums, (tiles, gathered trees).
template <std::size_t W, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, const Tree<Leaf>* sums, std::size_t begin, std::size_t end) {
    const std::size_t n_apply = job.apply.size(), n_gather = job.gather.size();
    const std::size_t step = job.tiles.size() > 1 ? job.block_rows : end - begin;
    for (; begin < end; begin += step) {
        const std::size_t stop = std::min(begin + step, end);
        for (std::size_t i = 0; i < job.tiles.size(); ++i) {
            const Tree<Leaf>*apply = job.table.data() + i * n_apply, *gather = sums + i * n_gather;
            const Trees<Leaf> trees{apply, apply + n_apply, gather, gather + n_gather};
            const Tile& one = job.tiles[i];
            by_width(one, [&job, &trees, &one, begin, stop](auto width)
                              AXIL_INLINE_LAMBDA { tile<width.value, W>(job, trees, one.column, begin, stop); });
        }
    }
}

using Size = std::size_t;
#define AXIL_CHUNK(LEAF) \
    AXIL_VERSIONS(chunk, (const Job<LEAF>& job, const Tree<LEAF>* sums, Size begin, Size end), (job, sums, begin, end))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

}  // namespace sweeping

template <class Leaf>
void sweep(const Leaves<Leaf>& leaves, double* state, std::size_t columns, TreeList apply, const double* table,
           const double* apply_weights, TreeList gather, double* sums, const double* gather_weights, const Crew& crew) {
    using namespace sweeping;
    if (columns == 0) return;
    const std::size_t block = std::clamp(block_bytes / sizeof(double) / columns / 16 * 16, least_block, most_block);
    Job<Leaf> job{tiles_of(columns, false), {}, {}, {}, state, columns, block, apply_weights, gather_weights};
    for (std::size_t i = 0; i < apply.size; ++i) job.apply.add(leaves, apply[i]);
    for (std::size_t i = 0; i < gather.size; ++i) job.gather.add(leaves, gather[i]);

    const Buffer packed(job.apply.total() * columns);
    for (std::size_t i = 0; i < apply.size; ++i)
        pack(table + leaves.start(apply[i]) * columns, leaves.count(apply[i]), columns, job.tiles, packed.get(),
             job.apply.total(), job.apply.starts[i]);
    job.table = trees_by_tile(job.apply, job.tiles, packed.get());

    // Chunks of so many rows a leaf: all partial sums together are a small part of the state. Their number does not depend on the
    // columns, so a column's sums have the same bits whatever columns are beside it.
    const std::size_t total = job.gather.total(), size = total * columns;
    const Chunks chunks(leaves.rows, std::max(least_rows, rows_per_leaf * total), most_chunks);
    const Buffer partials(chunks.count() * size);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
        double* partial = partials.get() + i * size;
        std::fill(partial, partial + size, 0.0);
        chunk(job, trees_by_tile(job.gather, job.tiles, partial).data(), chunks.begin(i), chunks.end(i));
    });

    add_up(partials.get(), chunks.count(), size, crew);
    for (std::size_t i = 0; i < gather.size; ++i)
        unpack(sums + leaves.start(gather[i]) * columns, leaves.count(gather[i]), columns, job.tiles, partials.get(),
               total, job.gather.starts[i]);
}

AXIL_INSTANTIATE(sweep)

}  // namespace axil
