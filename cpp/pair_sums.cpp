// pair_sums: out[j - first] = sum over pairs of trees s <= t of a factor of row and tree s times the table entry of j's
// two leaves.
//
// The table is as wide as all leaves together and far larger than the caches. For each tree s a chunk's rows are taken
// in the order of their leaves, so that one row of the table serves many training rows in turn.
#include <vector>

#include "joint_cells.hpp"
#include "kernels.hpp"

namespace axil {
namespace pairing {

constexpr std::size_t chunk_bytes = 256 << 10;  // of leaf numbers: they stay in the second-level cache
constexpr std::size_t least_rows = 64, most_rows = 16384;

// The rows of a slab by their leaves in one tree, in a counting sort.
template <class Leaf>
void order_by_leaf(const joining::Slab<Leaf>& slab, std::size_t tree, std::size_t n_leaves,
                   std::vector<std::uint32_t>& places, std::vector<std::uint32_t>& order) {
    places.assign(n_leaves + 1, 0);
    for (std::size_t j = 0; j < slab.rows; ++j) ++places[slab.row(j)[tree] + 1];
    for (std::size_t l = 0; l < n_leaves; ++l) places[l + 1] += places[l];
    for (std::size_t j = 0; j < slab.rows; ++j) order[places[slab.row(j)[tree]]++] = static_cast<std::uint32_t>(j);
}

// Four sums side by side hide the latency of the additions; their order does not depend on anything but the trees.
template <class Leaf>
double row_sum(const Leaf* leaf, const std::int64_t* starts, std::size_t n, const double* entries) {
    double a = 0, b = 0, c = 0, d = 0;
    std::size_t t = 0;
    for (; t + 4 <= n; t += 4) {
        a += entries[starts[t] + leaf[t]];
        b += entries[starts[t + 1] + leaf[t + 1]];
        c += entries[starts[t + 2] + leaf[t + 2]];
        d += entries[starts[t + 3] + leaf[t + 3]];
    }
    for (; t < n; ++t) a += entries[starts[t] + leaf[t]];
    return (a + b) + (c + d);
}

}  // namespace pairing

template <class Leaf>
void pair_sums(const Leaves<Leaf>& leaves, const double* table, const double* factors, std::size_t first,
               std::size_t rows, double* out, const Crew& crew) {
    using namespace pairing;
    const std::size_t trees = leaves.trees, total = leaves.total();
    const std::size_t most = std::clamp(chunk_bytes / sizeof(Leaf) / std::max<std::size_t>(trees, 1), least_rows,
                                        most_rows);
    const Chunks chunks(rows, most, rows / most + 1);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
        const std::size_t begin = chunks.begin(i);
        joining::Slab<Leaf> slab;
        slab.first = first + begin, slab.rows = chunks.end(i) - begin, slab.trees = trees;
        slab.leaves.resize(slab.rows * trees);
        joining::transpose(leaves, 0, slab.rows, slab);
        std::vector<std::uint32_t> places, order(slab.rows);
        std::fill(out + begin, out + begin + slab.rows, 0.0);
        for (std::size_t s = 0; s < trees; ++s) {
            order_by_leaf(slab, s, leaves.count(s), places, order);
            for (const std::uint32_t j : order) {
                const Leaf* leaf = slab.row(j) + s;
                const double* entries = table + (leaves.start(s) + *leaf) * total;
                const double sum = row_sum(leaf, leaves.starts + s, trees - s, entries);
                out[begin + j] += factors ? factors[s * rows + begin + j] * sum : sum;
            }
        }
    });
}

AXIL_INSTANTIATE(pair_sums)

}  // namespace axil
