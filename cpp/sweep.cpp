// sweep: state[j] += a_j * sum of the applied trees' table rows; then leaf sums of g_j * state[j] for the gathered ones.
//
// The state streams through once, in blocks of rows that stay in the first-level cache while its column tiles are
// worked on. Table and partial sums are kept tile by tile, so that a leaf's entry is whole cache lines.
#include <vector>

#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace sweeping {

constexpr std::size_t block_bytes = 16 << 10;
constexpr std::size_t most_chunks = 128;
constexpr std::size_t least_rows = 4096, least_numbers = 1 << 16;  // of a chunk: worth handing to a thread

// The trees of one list, their leaves numbered consecutively.
template <class Leaf>
struct Group {
    std::vector<const Leaf*> leaves;
    std::vector<std::size_t> starts;
    std::size_t total = 0;

    Group(const Leaves<Leaf>& all, TreeList list) {
        for (std::size_t i = 0; i < list.size; ++i) {
            const auto t = static_cast<std::size_t>(list.trees[i]);
            leaves.push_back(all.tree(t));
            starts.push_back(total);
            total += all.count(t);
        }
    }
};

template <class Leaf>
struct Job {
    Group<Leaf> apply, gather;
    std::vector<Tile> tiles;
    double* state;
    std::size_t columns;
    const double *apply_weights, *gather_weights;
    const double* table;  // of the applied trees, tile by tile: (apply.total, width) each
};

// Rows begin .. begin + R - 1 of one tile of C columns.
template <std::size_t C, std::size_t W, std::size_t R, class Leaf>
AXIL_INLINE void rows(const Job<Leaf>& job, std::size_t column, std::size_t begin, double* sums) {
    using Row = Vectors<C, W>;
    constexpr std::size_t n = Row::count;
    typename Row::type total[R * n] = {};
    const double* table = job.table + job.apply.total * column;
    for (std::size_t t = 0; t < job.apply.leaves.size(); ++t) {
        const Leaf* leaf = job.apply.leaves[t] + begin;
        const double* entries = table + job.apply.starts[t] * C;
        AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) {
            typename Row::type entry;
            load(entry, entries + leaf[i / n] * C + i % n * Row::lanes);
            total[i] += entry;
        }
    }
    double* state = job.state + begin * job.columns + column;
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) {
        const std::size_t r = i / n, at = r * job.columns + i % n * Row::lanes;
        typename Row::type old;
        load(old, state + at);
        total[i] = old + total[i] * (job.apply_weights ? job.apply_weights[begin + r] : 1.0);
        store(state + at, total[i]);
        total[i] = total[i] * (job.gather_weights ? job.gather_weights[begin + r] : 1.0);
    }
    for (std::size_t t = 0; t < job.gather.leaves.size(); ++t) {
        const Leaf* leaf = job.gather.leaves[t] + begin;
        double* entries = sums + job.gather.starts[t] * C;
        AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) {
            double* place = entries + leaf[i / n] * C + i % n * Row::lanes;
            typename Row::type sum;
            load(sum, place);
            store(place, sum + total[i]);
        }
    }
}

template <std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void tile(const Job<Leaf>& job, std::size_t column, std::size_t begin, std::size_t end, double* sums) {
    constexpr std::size_t R = Vectors<C, W>::rows;
    for (; begin + R <= end; begin += R) rows<C, W, R>(job, column, begin, sums);
    for (; begin < end; ++begin) rows<C, W, 1>(job, column, begin, sums);
}

// The partial sums of one chunk of rows, tile by tile: (gather.total, width) each.
template <std::size_t W, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end, double* partial) {
    const std::size_t step = std::max<std::size_t>(block_bytes / sizeof(double) / job.columns / 16 * 16, 16);
    for (; begin < end; begin += step) {
        const std::size_t stop = std::min(begin + step, end);
        for (const Tile& t : job.tiles) {
            double* sums = partial + job.gather.total * t.column;
            switch (t.width) {
                case 16: tile<16, W>(job, t.column, begin, stop, sums); break;
                case 8: tile<8, W>(job, t.column, begin, stop, sums); break;
                case 4: tile<4, W>(job, t.column, begin, stop, sums); break;
                case 2: tile<2, W>(job, t.column, begin, stop, sums); break;
                default: tile<1, W>(job, t.column, begin, stop, sums);
            }
        }
    }
}

using Size = std::size_t;
AXIL_VERSIONS(chunk, (const Job<std::uint8_t>& job, Size from, Size to, double* partial), (job, from, to, partial))
AXIL_VERSIONS(chunk, (const Job<std::uint16_t>& job, Size from, Size to, double* partial), (job, from, to, partial))
AXIL_VERSIONS(chunk, (const Job<std::uint32_t>& job, Size from, Size to, double* partial), (job, from, to, partial))

}  // namespace sweeping

template <class Leaf>
void sweep(const Leaves<Leaf>& leaves, double* state, std::size_t columns, TreeList apply, const double* table,
           const double* apply_weights, TreeList gather, double* sums, const double* gather_weights, const Crew& crew) {
    if (columns == 0) return;
    using namespace sweeping;
    Job<Leaf> job{{leaves, apply}, {leaves, gather}, tiles_of(columns, false), state, columns, apply_weights,
                  gather_weights,  nullptr};

    const Buffer table_tiles(job.apply.total * columns);
    for (std::size_t i = 0; i < apply.size; ++i) {
        const auto t = static_cast<std::size_t>(apply.trees[i]);
        pack(table + leaves.start(t) * columns, leaves.count(t), columns, job.tiles, table_tiles.get(),
             job.apply.total, job.apply.starts[i]);
    }
    job.table = table_tiles.get();

    // Chunks of at least four rows a leaf: all partial sums together take no more than a quarter of the state's memory.
    const Chunks chunks(leaves.rows, std::max({least_rows, least_numbers / columns, 4 * job.gather.total}), most_chunks);
    const std::size_t size = job.gather.total * columns;
    const Buffer partials(chunks.count() * size);
    parallel(crew, chunks.count(), [&](std::size_t i) {
        double* partial = partials.get() + i * size;
        std::fill(partial, partial + size, 0.0);
        chunk(job, chunks.begin(i), chunks.end(i), partial);
    });

    add_up(partials.get(), chunks.count(), size, crew);
    for (std::size_t i = 0; i < gather.size; ++i) {
        const auto t = static_cast<std::size_t>(gather.trees[i]);
        unpack(sums + leaves.start(t) * columns, leaves.count(t), columns, job.tiles, partials.get(), job.gather.total,
               job.gather.starts[i]);
    }
}

template void sweep(const Leaves<std::uint8_t>&, double*, std::size_t, TreeList, const double*, const double*, TreeList,
                    double*, const double*, const Crew&);
template void sweep(const Leaves<std::uint16_t>&, double*, std::size_t, TreeList, const double*, const double*,
                    TreeList, double*, const double*, const Crew&);
template void sweep(const Leaves<std::uint32_t>&, double*, std::size_t, TreeList, const double*, const double*,
                    TreeList, double*, const double*, const Crew&);

}  // namespace axil
