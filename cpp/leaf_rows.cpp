// leaf_rows: the rows that each leaf was fitted on, with their entries, in the order of the leaves: a sort by counting.
//
// Which entries are zero is as good as random, so nothing branches on it: those of some rows are written side by side first,
// each over the one before it if that is zero.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels.hpp"

namespace axil {
namespace sorting {

constexpr std::size_t together = 1024;  // rows, whose entries stay in the first cache

struct Entry {
    double value;
    std::int32_t row;
    std::uint32_t leaf;
};

// Calls use(entry) for the rows of a tree from first to last.
template <class Leaf, class Use>
void visit(const Leaves<Leaf>& cells, const LeafRows& job, std::size_t tree, std::size_t first, std::size_t last,
           const Use& use) {
    const std::size_t start = cells.start(tree);
    const auto n = static_cast<std::uint32_t>(cells.count(tree));
    const Leaf* cell = cells.tree(tree);
    const double* factors = job.factors + start;
    const double share = 1.0 / n;  // faster than to divide; a half keeps it off whole numbers
    for (std::size_t j = first; j < last; ++j) {
        std::uint32_t leaf = cell[j];
        double value = job.weights ? job.weights[j] : 1.0;
        if (job.levels > 1) {
            const auto level = static_cast<std::uint32_t>((leaf + 0.5) * share);
            leaf -= level * n;
            value *= job.by_leaf ? job.draws[level * cells.total() + start + leaf] : job.draws[level];
        }
        use(Entry{value * factors[leaf], static_cast<std::int32_t>(j), leaf});
    }
}

// The entries of each leaf, by those of its cells: all rows of a cell have the same.
template <class Leaf>
void count(const Leaves<Leaf>& cells, const LeafRows& job, std::size_t tree, std::int64_t* counts) {
    const std::size_t start = cells.start(tree), n = cells.count(tree);
    std::vector<std::uint32_t> found(job.levels * n);
    const Leaf* cell = cells.tree(tree);
    for (std::size_t j = 0; j < cells.rows; ++j) ++found[cell[j]];
    for (std::size_t level = 0; level < job.levels; ++level)
        for (std::size_t leaf = 0; leaf < n; ++leaf) {
            const double draw = job.by_leaf ? job.draws[level * cells.total() + start + leaf] : job.draws[level];
            if ((job.levels > 1 ? draw : 1.0) * job.factors[start + leaf] != 0) counts[leaf] += found[level * n + leaf];
        }
}

}  // namespace sorting

template <class Leaf>
bool leaf_rows(const Leaves<Leaf>& cells, const LeafRows& job, const Crew& crew) {
    using namespace sorting;
    std::atomic<bool> fits{true};
    if (!job.data) job.ends[0] = 0;
    parallel(crew, cells.trees, [&](std::size_t tree, std::size_t) {
        const std::size_t n = cells.count(tree);
        std::int64_t* ends = job.ends + cells.start(tree);
        if (!job.data) {
            std::fill_n(ends + 1, n, 0);
            if (job.weights)
                visit(cells, job, tree, 0, cells.rows, [&](const Entry& one) { ends[one.leaf + 1] += one.value != 0; });
            else
                count(cells, job, tree, ends + 1);
            return;
        }
        std::vector<std::int64_t> next(ends, ends + n);
        std::vector<Entry> some(together);
        bool room = true;
        for (std::size_t first = 0; first < cells.rows && room; first += together) {
            std::size_t found = 0;
            visit(cells, job, tree, first, std::min(first + together, cells.rows), [&](const Entry& one) {
                some[found] = one;
                found += one.value != 0;
            });
            for (std::size_t i = 0; i < found; ++i) {
                const std::int64_t place = next[some[i].leaf]++;
                room = place < ends[some[i].leaf + 1];
                if (!room) break;
                job.data[place] = some[i].value;
                job.rows[place] = some[i].row;
            }
        }
        if (!room || !std::equal(next.begin(), next.end(), ends + 1)) fits = false;
    });
    return fits;
}

AXIL_INSTANTIATE(leaf_rows)

}  // namespace axil
