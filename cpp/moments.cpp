// moments: sums of row values under |k| and under k^2, with k what read_out gives, which is never written down.
//
// A block of a tile is summed as in read_out, and reduced while it is in the second-level cache: two multiplications per
// row, column and value, next to a look-up per tree.
#include <cmath>
#include <vector>

#include "lookups.hpp"

namespace axil {
namespace reducing {

constexpr std::size_t most_rows = 1024;        // of a block
constexpr std::size_t strip_columns = widest;  // so few that trees are joined, as in top_rows
constexpr std::size_t most_chunks = 256;       // each has sums of its own

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const std::vector<Lookup>& lookups;
    const std::vector<Tile>& tiles;
    std::size_t total, padded;  // entries; columns of the strip with those that fill up its last tile
    const double *packed, *constant, *weights, *values;
    std::size_t n_values;
};

// One thread's room.
template <class Leaf>
struct Scratch {
    double* sums;     // (most_rows, widest)
    IdOf<Leaf>* ids;  // (most_together, most_rows)
};

// Add the rows of a tile of C columns, sizes |k| (n, C), to the sums of one value: out under |k|, then under k^2.
template <std::size_t C, std::size_t W>
AXIL_INLINE void add_value(const double* sizes, std::size_t n, const double* values, std::size_t stride, double* first,
                           double* second) {
    using Row = Vectors<C, W>;
    using V = typename Row::type;
    constexpr std::size_t count = Row::count;
    V linear[count], square[count];
    AXIL_UNROLL for (std::size_t i = 0; i < count; ++i) {
        linear[i] = load<V>(first + i * Row::lanes);
        square[i] = load<V>(second + i * Row::lanes);
    }
    for (std::size_t r = 0; r < n; ++r) {
        const double value = values[r * stride];
        AXIL_UNROLL for (std::size_t i = 0; i < count; ++i) {
            const V size = load<V>(sizes + r * C + i * Row::lanes), part = size * value;
            linear[i] += part;
            square[i] += size * part;
        }
    }
    AXIL_UNROLL for (std::size_t i = 0; i < count; ++i) {
        store(first + i * Row::lanes, linear[i]);
        store(second + i * Row::lanes, square[i]);
    }
}

template <std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void tile(const Job<Leaf>& job, const Tile& tile, std::size_t begin, std::size_t n,
                      const Scratch<Leaf>& room, double* out) {
    for (std::size_t r = 0; r < n; ++r) std::copy_n(job.constant + tile.column, C, room.sums + r * C);
    add_all<double, C, W>(job.leaves, job.lookups, job.packed + job.total * tile.column, begin, n, most_rows, room.ids,
                          room.sums);
    for (std::size_t r = 0; r < n; ++r) {
        const double weight = job.weights ? job.weights[begin + r] : 1.0;
        for (std::size_t c = 0; c < C; ++c) room.sums[r * C + c] = std::fabs(weight * room.sums[r * C + c]);
    }
    for (std::size_t m = 0; m < job.n_values; ++m) {
        double* first = out + m * job.padded + tile.column;
        add_value<C, W>(room.sums, n, job.values + begin * job.n_values + m, job.n_values, first,
                        first + job.n_values * job.padded);
    }
}

template <std::size_t W, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end, const Scratch<Leaf>& room,
                             double* out) {
    for (; begin < end; begin += most_rows) {
        const std::size_t n = std::min(most_rows, end - begin);
        for (const Tile& one : job.tiles)
            by_width(one, [&job, &one, &room, begin, n, out](auto width)
                              AXIL_INLINE_LAMBDA { tile<width.value, W>(job, one, begin, n, room, out); });
    }
}

using Size = std::size_t;
#define AXIL_CHUNK(LEAF)                                                                                       \
    AXIL_VERSIONS(chunk, (const Job<LEAF>& job, Size begin, Size end, const Scratch<LEAF>& room, double* out), \
                  (job, begin, end, room, out))
AXIL_LEAVES(AXIL_CHUNK)
#undef AXIL_CHUNK

}  // namespace reducing

template <class Leaf>
void moments(const Leaves<Leaf>& leaves, const double* table, std::size_t table_stride, std::size_t columns,
             const double* constant, const double* weights, const double* values, std::size_t n_values, double* out,
             const Crew& crew) {
    using namespace reducing;
    std::fill_n(out, 2 * columns * n_values, 0.0);
    const std::size_t rows = leaves.rows;
    if (columns == 0 || rows == 0 || n_values == 0) return;
    const auto lookups = lookups_of(leaves, rows, std::min(columns, strip_columns));
    const std::size_t total = cells_of(lookups), widest_strip = std::min(strip_columns, columns) + widest;
    const Buffer packed(total * widest_strip), constants(widest_strip);
    const Chunks chunks(rows, most_rows, most_chunks);
    const std::size_t n_threads = std::min(crew.n_threads, chunks.count());
    const Buffer sums(n_threads * most_rows * widest), partials(chunks.count() * 2 * n_values * widest_strip);
    const BufferOf<IdOf<Leaf>> ids(n_threads * most_together * most_rows);

    for (std::size_t strip = 0; strip < columns; strip += strip_columns) {
        const std::size_t used = std::min(strip_columns, columns - strip);
        const auto tiles = tiles_of(used, true);
        const std::size_t padded = padded_columns(tiles), size = 2 * n_values * padded;
        join_all(leaves, lookups, table, table_stride, strip, tiles, packed.get(), crew);
        pack(constant + strip, 1, columns, tiles, constants.get(), 1, 0);
        std::fill_n(partials.get(), chunks.count() * size, 0.0);
        const Job<Leaf> job{leaves,       lookups,         tiles,   total,  padded,
                            packed.get(), constants.get(), weights, values, n_values};
        parallel(crew, chunks.count(), [&](std::size_t i, std::size_t thread) {
            const Scratch<Leaf> room{sums.get() + thread * most_rows * widest,
                                     ids.get() + thread * most_together * most_rows};
            chunk(job, chunks.begin(i), chunks.end(i), room, partials.get() + i * size);
        });
        add_up(partials.get(), chunks.count(), size, crew);
        for (std::size_t o = 0; o < 2; ++o)
            for (std::size_t c = 0; c < used; ++c)
                for (std::size_t m = 0; m < n_values; ++m)
                    out[(o * columns + strip + c) * n_values + m] = partials.get()[(o * n_values + m) * padded + c];
    }
}

AXIL_INSTANTIATE(moments)

}  // namespace axil
