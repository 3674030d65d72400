// product: out = a b. column_sums: out = block' values, or of the block's sizes or squares.
//
// A column's sums are made in one order, whatever columns are beside it: BLAS takes other ways through matrices of other shapes,
// and the last bits of an answer would depend on what was asked with it.
#include <cmath>
#include <vector>

#include "buffer.hpp"
#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {
namespace multiplying {

constexpr std::size_t least_work = 1 << 20, most_chunks = 4096;  // multiplications worth handing to a thread

struct Job {
    const double* a;
    std::size_t a_stride, inner;
    const std::vector<Tile>& tiles;
    const double* packed;  // b, tile by tile
    double* out;
    std::size_t out_stride;
};

// R rows of one tile of C columns, on registers of W doubles.
template <std::size_t C, std::size_t W, std::size_t R>
AXIL_INLINE void rows(const Job& job, std::size_t column, std::size_t first) {
    using Row = Vectors<C, W>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    const double *a = job.a + first * job.a_stride, *b = job.packed + job.inner * column;
    V total[R * n] = {};
    for (std::size_t k = 0; k < job.inner; ++k, ++a, b += C) {
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            const double factor = a[r * job.a_stride];
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) total[r * n + i] += load<V>(b + i * Row::lanes) * factor;
        }
    }
    double* out = job.out + first * job.out_stride + column;
    AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
        AXIL_UNROLL for (std::size_t i = 0; i < n; ++i)
            store(out + r * job.out_stride + i * Row::lanes, total[r * n + i]);
    }
}

template <std::size_t C, std::size_t W>
AXIL_INLINE void tile(const Job& job, std::size_t column, std::size_t begin, std::size_t end) {
    constexpr std::size_t R = Vectors<C, W>::rows;
    for (; begin + R <= end; begin += R) rows<C, W, R>(job, column, begin);
    for (; begin < end; ++begin) rows<C, W, 1>(job, column, begin);
}

template <std::size_t W>
AXIL_INLINE void chunk_lanes(const Job& job, std::size_t begin, std::size_t end) {
    for (const Tile& one : job.tiles)
        by_width(one, [&job, &one, begin, end](auto width)
                          AXIL_INLINE_LAMBDA { tile<width.value, W>(job, one.column, begin, end); });
}

using Size = std::size_t;
AXIL_VERSIONS(chunk, (const Job& job, Size begin, Size end), (job, begin, end))

}  // namespace multiplying

void product(const double* a, std::size_t a_stride, std::size_t rows, std::size_t inner, const double* b,
             std::size_t columns, double* out, std::size_t out_stride, const Crew& crew) {
    using namespace multiplying;
    if (rows == 0 || columns == 0) return;
    const auto tiles = tiles_of(columns, false);
    const Buffer packed(inner * columns);
    pack(b, inner, columns, tiles, packed.get(), inner, 0);
    const Job job{a, a_stride, inner, tiles, packed.get(), out, out_stride};
    const Chunks chunks(rows, 1 + least_work / (1 + inner * columns), most_chunks);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) { chunk(job, chunks.begin(i), chunks.end(i)); });
}

namespace adding {

constexpr std::size_t block_rows = 2048;        // whose sums are made one after the other, then added block by block
constexpr std::size_t least_numbers = 1 << 17;  // worth handing to a thread

struct Job {
    const double* block;
    std::ptrdiff_t row_stride, column_stride;
    std::size_t rows;
    const double* values;  // (rows, n_values)
    std::size_t n_values;
    Measure measure;
    const std::vector<Tile>& tiles;
    std::size_t padded;
};

inline double measured(double k, Measure measure) {
    return measure == Measure::size ? std::fabs(k) : measure == Measure::square ? k * k : k;
}

// Some rows of a tile of C columns, next to each other.
template <std::size_t C>
AXIL_INLINE void copy(const Job& job, const Tile& tile, std::size_t begin, std::size_t n, double* to) {
    const double* from = job.block + static_cast<std::ptrdiff_t>(begin) * job.row_stride +
                         static_cast<std::ptrdiff_t>(tile.column) * job.column_stride;
    std::fill_n(to, tile.used < C ? n * C : 0, 0.0);
    const auto at = [&](std::size_t r, std::size_t c) {
        return from[static_cast<std::ptrdiff_t>(r) * job.row_stride +
                    static_cast<std::ptrdiff_t>(c) * job.column_stride];
    };
    if (job.column_stride == 1)
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t c = 0; c < tile.used; ++c) to[r * C + c] = measured(at(r, c), job.measure);
    else
        for (std::size_t c = 0; c < tile.used; ++c)
            for (std::size_t r = 0; r < n; ++r) to[r * C + c] = measured(at(r, c), job.measure);
}

template <std::size_t C, std::size_t W>
AXIL_INLINE void tile(const Job& job, const Tile& tile, std::size_t begin, std::size_t n, double* room, double* sums) {
    using Row = Vectors<C, W>;
    using V = typename Row::type;
    constexpr std::size_t count = Row::count;
    const bool as_it_is = job.column_stride == 1 && job.measure == Measure::self && tile.used == C;
    if (!as_it_is) copy<C>(job, tile, begin, n, room);
    const std::ptrdiff_t step = as_it_is ? job.row_stride : static_cast<std::ptrdiff_t>(C);
    const double* from = as_it_is ? job.block + static_cast<std::ptrdiff_t>(begin) * step + tile.column : room;
    for (std::size_t m = 0; m < job.n_values; ++m) {
        const double* values = job.values + begin * job.n_values + m;
        V total[count] = {};
        for (std::size_t r = 0; r < n; ++r) {
            const double* row = from + static_cast<std::ptrdiff_t>(r) * step;
            AXIL_UNROLL for (std::size_t i = 0; i < count; ++i)
                total[i] += load<V>(row + i * Row::lanes) * values[r * job.n_values];
        }
        AXIL_UNROLL for (std::size_t i = 0; i < count; ++i)
            store(sums + m * job.padded + tile.column + i * Row::lanes, total[i]);
    }
}

template <std::size_t W>
AXIL_INLINE void block_lanes(const Job& job, std::size_t begin, std::size_t n, double* room, double* sums) {
    for (const Tile& one : job.tiles)
        by_width(one, [&job, &one, begin, n, room, sums](auto width)
                          AXIL_INLINE_LAMBDA { tile<width.value, W>(job, one, begin, n, room, sums); });
}

using Size = std::size_t;
AXIL_VERSIONS(block, (const Job& job, Size begin, Size n, double* room, double* sums), (job, begin, n, room, sums))

}  // namespace adding

void column_sums(const double* block, std::ptrdiff_t row_stride, std::ptrdiff_t column_stride, std::size_t rows,
                 std::size_t columns, const double* values, std::size_t n_values, Measure measure, double* out,
                 const Crew& crew) {
    using namespace adding;
    std::fill_n(out, columns * n_values, 0.0);
    if (rows == 0 || columns == 0 || n_values == 0) return;
    const auto tiles = tiles_of(columns, true);
    const std::size_t padded = padded_columns(tiles), size = n_values * padded;
    const std::size_t blocks = (rows + block_rows - 1) / block_rows;
    const Job job{block, row_stride, column_stride, rows, values, n_values, measure, tiles, padded};
    const Chunks tasks(blocks, 1 + least_numbers / (block_rows * columns), blocks);
    const Buffer partials(blocks * size), room(std::min(crew.n_threads, tasks.count()) * block_rows * widest);
    const std::size_t step = (blocks + tasks.count() - 1) / tasks.count();  // blocks of a task
    parallel(crew, tasks.count(), [&](std::size_t i, std::size_t thread) {
        for (std::size_t b = i * step; b < std::min((i + 1) * step, blocks); ++b)
            adding::block(job, b * block_rows, std::min(block_rows, rows - b * block_rows),
                          room.get() + thread * block_rows * widest, partials.get() + b * size);
    });
    add_up(partials.get(), blocks, size, crew);
    for (std::size_t c = 0; c < columns; ++c)
        for (std::size_t m = 0; m < n_values; ++m) out[c * n_values + m] = partials.get()[m * padded + c];
}

}  // namespace axil
