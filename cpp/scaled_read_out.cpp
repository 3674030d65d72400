// scaled_read_out: out[j - first] = sum over all trees of a factor of the row and tree times the table row of j's leaf.
//
// A read-out whose trees count differently from row to row: a block of rows goes through all trees while its part of the
// output stays in the nearest caches.
#include <algorithm>

#include "kernels.hpp"
#include "targets.hpp"

namespace axil {
namespace scaling {

constexpr std::size_t block_bytes = 64 << 10;           // of the output
constexpr std::size_t most_chunks = 4096, least_work = 300000;  // look-ups worth handing to a thread

template <class Leaf>
struct Job {
    Leaves<Leaf> leaves;
    const double *table, *factors;
    std::size_t columns, first, rows, block_rows;
    double* out;
};

template <std::size_t, class Leaf>
AXIL_INLINE void chunk_lanes(const Job<Leaf>& job, std::size_t begin, std::size_t end) {
    const std::size_t columns = job.columns;
    for (; begin < end; begin += job.block_rows) {
        const std::size_t stop = std::min(begin + job.block_rows, end);
        std::fill(job.out + begin * columns, job.out + stop * columns, 0.0);
        for (std::size_t t = 0; t < job.leaves.trees; ++t) {
            const Leaf* leaf = job.leaves.tree(t) + job.first;
            const double* entries = job.table + job.leaves.start(t) * columns;
            const double* factor = job.factors + t * job.rows;
            for (std::size_t j = begin; j < stop; ++j) {
                const double* entry = entries + leaf[j] * columns;
                double* out = job.out + j * columns;
                for (std::size_t c = 0; c < columns; ++c) out[c] += factor[j] * entry[c];
            }
        }
    }
}

using Size = std::size_t;
AXIL_VERSIONS(chunk, (const Job<std::uint8_t>& job, Size begin, Size end), (job, begin, end))
AXIL_VERSIONS(chunk, (const Job<std::uint16_t>& job, Size begin, Size end), (job, begin, end))
AXIL_VERSIONS(chunk, (const Job<std::uint32_t>& job, Size begin, Size end), (job, begin, end))

}  // namespace scaling

template <class Leaf>
void scaled_read_out(const Leaves<Leaf>& leaves, const double* table, std::size_t columns, const double* factors,
                     std::size_t first, std::size_t rows, double* out, const Crew& crew) {
    using namespace scaling;
    const std::size_t block_rows = std::max<std::size_t>(block_bytes / sizeof(double) / std::max<Size>(columns, 1), 16);
    const Job<Leaf> job{leaves, table, factors, columns, first, rows, block_rows, out};
    const std::size_t work = std::max<std::size_t>(leaves.trees * columns, 1);  // of a row
    const Chunks chunks(rows, least_work / work, most_chunks);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) { chunk(job, chunks.begin(i), chunks.end(i)); });
}

template void scaled_read_out(const Leaves<std::uint8_t>&, const double*, std::size_t, const double*, std::size_t,
                              std::size_t, double*, const Crew&);
template void scaled_read_out(const Leaves<std::uint16_t>&, const double*, std::size_t, const double*, std::size_t,
                              std::size_t, double*, const Crew&);
template void scaled_read_out(const Leaves<std::uint32_t>&, const double*, std::size_t, const double*, std::size_t,
                              std::size_t, double*, const Crew&);

}  // namespace axil
