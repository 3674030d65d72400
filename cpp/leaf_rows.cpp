// leaf_rows: the rows that each leaf was fitted on, with their entries, in the order of the leaves: a sort by counting.
//
// Which entries are zero is as good as random, so nothing branches on it: entries are noted one over the other until one
// counts, and then those that do are put into their places.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels.hpp"

namespace axil {
namespace sorting {

struct Entry {
    double value;
    std::int32_t row;
    std::uint32_t leaf;
};

// Calls use(entry) for every row of a tree.
template <class Leaf, class Use>
void visit(const Leaves<Leaf>& cells, const LeafRows& job, std::size_t tree, const Use& use) {
    const std::size_t start = cells.start(tree);
    const auto n = static_cast<std::uint32_t>(cells.count(tree));
    const Leaf* cell = cells.tree(tree);
    const double* factors = job.factors + start;
    const double share = 1.0 / n;  // faster than to divide; a half keeps it off whole numbers
    for (std::size_t j = 0; j < cells.rows; ++j) {
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
            visit(cells, job, tree, [&](const Entry& one) { ends[one.leaf + 1] += one.value != 0; });
            return;
        }
        std::vector<Entry> entries(cells.rows + 1);
        std::vector<std::int64_t> next(ends, ends + n);
        Entry* end = entries.data();
        visit(cells, job, tree, [&](const Entry& one) {
            *end = one;
            end += one.value != 0;
            next[one.leaf] += one.value != 0;
        });
        if (!std::equal(next.begin(), next.end(), ends + 1)) {
            fits = false;
            return;
        }
        std::copy_n(ends, n, next.begin());
        for (const Entry* one = entries.data(); one != end; ++one) {
            const auto place = static_cast<std::size_t>(next[one->leaf]++);
            job.data[place] = one->value;
            job.rows[place] = one->row;
        }
    });
    return fits;
}

AXIL_INSTANTIATE(leaf_rows)

}  // namespace axil
