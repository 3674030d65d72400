// leaf_rows: the rows that each leaf was fitted on, with their entries, in the order of the leaves: a sort by counting.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels.hpp"

namespace axil {
namespace sorting {

// Calls use(leaf, row, entry) for every entry of a tree that is not zero, row by row.
template <class Leaf, class Use>
void visit(const Leaves<Leaf>& cells, const LeafRows& job, std::size_t tree, const Use& use) {
    const std::size_t start = cells.start(tree);
    const auto n = static_cast<std::uint32_t>(cells.count(tree));
    const Leaf* cell = cells.tree(tree);
    const double* factors = job.factors + start;
    for (std::size_t j = 0; j < cells.rows; ++j) {
        std::uint32_t leaf = cell[j];
        double entry = job.weights ? job.weights[j] : 1.0;
        if (job.levels > 1) {
            const std::uint32_t level = leaf / n;
            leaf -= level * n;
            entry *= job.by_leaf ? job.draws[level * cells.total() + start + leaf] : job.draws[level];
        }
        entry *= factors[leaf];
        if (entry != 0) use(leaf, j, entry);
    }
}

}  // namespace sorting

template <class Leaf>
bool leaf_rows(const Leaves<Leaf>& cells, const LeafRows& job, const Crew& crew) {
    std::atomic<bool> fits{true};
    if (!job.data) job.ends[0] = 0;
    parallel(crew, cells.trees, [&](std::size_t tree, std::size_t) {
        std::int64_t* ends = job.ends + cells.start(tree);
        if (!job.data) {
            std::fill_n(ends + 1, cells.count(tree), 0);
            sorting::visit(cells, job, tree, [&](std::uint32_t leaf, std::size_t, double) { ++ends[leaf + 1]; });
            return;
        }
        std::vector<std::int64_t> next(ends, ends + cells.count(tree));
        sorting::visit(cells, job, tree, [&](std::uint32_t leaf, std::size_t row, double entry) {
            if (next[leaf] == ends[leaf + 1]) {
                fits = false;
                return;
            }
            const auto place = static_cast<std::size_t>(next[leaf]++);
            job.data[place] = entry;
            job.rows[place] = static_cast<std::int32_t>(row);
        });
    });
    return fits;
}

AXIL_INSTANTIATE(leaf_rows)

}  // namespace axil
