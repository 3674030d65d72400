// read_out: out[j - first] = w_j * (constant + sum over all trees of the table row of j's leaf).
//
// Bound by look-ups: see lookups.hpp. Columns go in strips whose joined table fits the last cache; of a strip, a block of
// rows is summed tile by tile, over a few look-ups at a time.
#include <vector>

#include "lookups.hpp"

namespace axil {
namespace reading {

// Measured: the sums stay in the second-level cache, with the output where it is written tile by tile.
constexpr std::size_t most_rows = 2048, wide_rows = 1024;
constexpr std::size_t rows_per_leaf = 2;    // fewer rows than half of the leaves of a tree: its table is not packed
constexpr std::size_t strip_columns = 112;  // seven tiles
constexpr std::size_t most_chunks = 4096, least_work = 300000;  // look-ups worth handing to a thread

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const std::vector<Lookup>& lookups;
    const std::vector<Tile>& tiles;
    // Entries; from row to row of out; where the strip begins; rows of a block.
    std::size_t total, stride, strip, block;
    const double *packed, *constant, *weights;
    std::size_t first;
    double* out;
};

template <class Leaf>
struct Few {
    Leaves<Leaf> leaves;
    const std::vector<Lookup>& lookups;
    const double* table;
    std::size_t table_stride, columns;
    const double *constant, *weights;
    std::size_t first;
    double* out;
    std::size_t stride;
};

// One thread's room.
template <class Leaf>
struct Scratch {
    double* sums;     // (most_rows, widest)
    IdOf<Leaf>* ids;  // (most_together, most_rows)
};

template <std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void tile(const Job<Leaf>& job, const Tile& tile, std::size_t begin, std::size_t n,
                      const Scratch<Leaf>& room) {
    for (std::size_t r = 0; r < n; ++r) std::copy_n(job.constant + tile.column, C, room.sums + r * C);
    add_all<double, C, W>(job.leaves, job.lookups, job.packed + job.total * tile.column, begin, n, most_rows, room.ids,
                          room.sums);
    double* out = job.out + (begin - job.first) * job.stride + job.strip + tile.column;
    for (std::size_t r = 0; r < n; ++r) {
        const double weight = job.weights ? job.weights[begin + r] : 1.0;
        for (std::size_t c = 0; c < tile.used; ++c) out[r * job.stride + c] = weight * room.sums[r * C + c];
    }
}

template <std::size_t W, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end, const Scratch<Leaf>& room) {
    for (; begin < end; begin += job.block) {
        const std::size_t n = std::min(job.block, end - begin);
        for (const Tile& one : job.tiles)
            by_width(one, [&job, &one, &room, begin, n](auto width)
                              AXIL_INLINE_LAMBDA { tile<width.value, W>(job, one, begin, n, room); });
    }
}

// Few rows, as they are: to pack the table would take longer than to read from it. `part` has room for a row.
template <std::size_t, class Leaf>
AXIL_INLINE void few_lanes(const Few<Leaf>& job, std::size_t begin, std::size_t end, double* AXIL_RESTRICT part) {
    const std::size_t columns = job.columns;
    for (std::size_t j = begin; j < end; ++j) {
        double* AXIL_RESTRICT out = job.out + (j - job.first) * job.stride;
        std::copy_n(job.constant, columns, out);
        const auto entry = [&](std::size_t t) {
            return job.table + (job.leaves.start(t) + job.leaves.tree(t)[j]) * job.table_stride;
        };
        for (const Lookup& lookup : job.lookups) {
            std::copy_n(entry(lookup.first), columns, part);
            for (std::size_t t = lookup.first + 1; t < lookup.last; ++t) {
                const double* more = entry(t);
                for (std::size_t c = 0; c < columns; ++c) part[c] += more[c];
            }
            for (std::size_t c = 0; c < columns; ++c) out[c] += part[c];
        }
        if (job.weights)
            for (std::size_t c = 0; c < columns; ++c) out[c] *= job.weights[j];
    }
}

using Size = std::size_t;
#define AXIL_FEW(LEAF) \
    AXIL_VERSIONS(few, (const Few<LEAF>& job, Size begin, Size end, double* part), (job, begin, end, part))
AXIL_LEAVES(AXIL_FEW)
#undef AXIL_FEW
#define AXIL_CHUNK(LEAF)                                                                          \
    AXIL_VERSIONS(chunk, (const Job<LEAF>& job, Size begin, Size end, const Scratch<LEAF>& room), \
                  (job, begin, end, room))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

}  // namespace reading

template <class Leaf>
void read_out(const Leaves<Leaf>& leaves, const double* table, std::size_t table_stride, std::size_t columns,
              const double* constant, const double* weights, std::size_t first, std::size_t rows, double* out,
              std::size_t out_stride, const Crew& crew) {
    using namespace reading;
    if (columns == 0 || rows == 0) return;
    const auto lookups = lookups_of(leaves, rows, columns);
    if (rows * rows_per_leaf * leaves.trees < leaves.total()) {
        const Few<Leaf> job{leaves, lookups, table, table_stride, columns, constant, weights, first, out, out_stride};
        const Chunks chunks(rows, 1 + least_work / (1 + leaves.trees * columns), most_chunks);
        const Buffer parts(std::min(crew.n_threads, chunks.count()) * columns);
        return parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
            few(job, first + chunks.begin(i), first + chunks.end(i), parts.get() + thread * columns);
        });
    }
    const std::size_t total = cells_of(lookups), widest_strip = std::min(strip_columns, columns) + widest;
    const Buffer packed(total * widest_strip), constants(widest_strip);
    const std::size_t work = std::max<std::size_t>(leaves.trees * columns, 1);  // of a row
    const std::size_t block = columns > widest ? wide_rows : most_rows;
    const Chunks chunks(rows, std::max(block, least_work / work), most_chunks);
    const std::size_t n_threads = std::min(crew.n_threads, chunks.count());
    const Buffer sums(n_threads * most_rows * widest);
    const BufferOf<IdOf<Leaf>> ids(n_threads * most_together * most_rows);

    for (std::size_t strip = 0; strip < columns; strip += strip_columns) {
        const auto tiles = tiles_of(std::min(strip_columns, columns - strip), true);
        join_all(leaves, lookups, table, table_stride, strip, tiles, packed.get(), crew);
        pack(constant + strip, 1, columns, tiles, constants.get(), 1, 0);
        const Job<Leaf> job{leaves, lookups,      tiles,           total,   out_stride, strip,
                            block,  packed.get(), constants.get(), weights, first,      out};
        parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
            const Scratch<Leaf> room{sums.get() + thread * most_rows * widest,
                                     ids.get() + thread * most_together * most_rows};
            chunk(job, first + chunks.begin(i), first + chunks.end(i), room);
        });
    }
}

AXIL_INSTANTIATE(read_out)

}  // namespace axil
