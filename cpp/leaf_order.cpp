// ordered_read_out: what the rows of the leaves of some queries add to their scores, from entries in the order of the leaves.
//
// A query meets one leaf per tree, whose entries lie next to each other: other rows are never visited. The sums of a block
// of rows stay in the second-level cache, and entries are fetched ahead. They are added in the order of the query's cells.
#include <algorithm>

#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {
namespace ordering {

constexpr std::int64_t ahead = 256, step = 32;  // entries: 2 KB before they are needed, four cache lines at a time

// sums[rows[e]] += coefficient * values[e], for entries of different rows.
void scatter(const double* AXIL_RESTRICT values, const std::uint16_t* AXIL_RESTRICT rows, std::int64_t count,
             double coefficient, double* AXIL_RESTRICT sums) {
    std::int64_t e = 0;
    for (; e + step <= count; e += step) {
        for (std::int64_t i = 0; i < step && e + ahead + i < count; i += 8) AXIL_PREFETCH_READ(values + e + ahead + i);
        if (e + ahead < count) AXIL_PREFETCH_READ(rows + e + ahead);
        for (std::int64_t i = e; i < e + step; ++i) sums[rows[i]] += coefficient * values[i];
    }
    for (; e < count; ++e) sums[rows[e]] += coefficient * values[e];
}

// The same for an entry of every row, in their order.
void add(const double* AXIL_RESTRICT values, std::int64_t count, double coefficient, double* AXIL_RESTRICT sums) {
    for (std::int64_t e = 0; e < count; ++e) sums[e] += coefficient * values[e];
}

}  // namespace ordering

void ordered_read_out(const LeafOrder& order, const CellList& queries, double* out, std::size_t rows,
                      const Crew& crew) {
    using namespace ordering;
    parallel(crew, queries.count * order.blocks, [&](std::size_t i, std::size_t) {
        const std::size_t query = i / order.blocks, block = i % order.blocks;
        const std::size_t first = block * order.block_rows;
        const std::size_t n = std::min(order.block_rows, rows - first);
        double* sums = out + query * rows + first;
        std::fill_n(sums, n, 0.0);
        const std::int64_t* ends = order.ends + block * (order.cells + 1);
        for (std::int64_t at = queries.starts[query]; at < queries.starts[query + 1]; ++at) {
            const double coefficient = queries.coefficients ? queries.coefficients[at] : 1.0;
            const std::int64_t begin = ends[queries.cells[at]];
            const std::int64_t count = ends[queries.cells[at] + 1] - begin;
            if (count == static_cast<std::int64_t>(n))
                add(order.values + begin, count, coefficient, sums);
            else
                scatter(order.values + begin, order.rows + begin, count, coefficient, sums);
        }
    });
}

}  // namespace axil
