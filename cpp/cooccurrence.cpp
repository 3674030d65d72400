// cooccurrence: the weight of the rows that two leaves of different trees share.
//
// One histogram of all later trees serves several earlier trees at once: the rows are sorted by their joint cell, that
// is their leaves in a few consecutive trees, and counted cell by cell. A cell's counts belong to its leaf in the last
// of these trees, and are also a part of the counts of its prefix, the joint cell of all but the last. There are far
// fewer cells than products of leaf counts; the data decide how many trees are worth joining.
#include <cstdint>
#include <utility>
#include <vector>

#include "instruction_sets.hpp"
#include "joint_cells.hpp"
#include "kernels.hpp"

namespace axil {
namespace joining {

constexpr std::size_t slab_bytes = 128 << 20, slab_rows = 1 << 20;  // sorting takes 16 bytes a row on each thread
constexpr std::size_t ahead = 12;                                   // rows to prefetch
constexpr std::size_t few_trees = 10;
// Nanoseconds, measured: sorting a row, counting it in one tree (and in one pair of trees, unsorted), and handing on
// one count of a cell.
constexpr double sort_cost = 10, count_cost = 1.0, pair_cost = 0.7, hand_on_cost = 0.25;

// Add a cell's counts to its leaf's row of the result and to its prefix (null for none), and clear them.
template <std::size_t, class Count>
AXIL_INLINE void hand_on_lanes(Count* counts, std::size_t n, double* out, Count* prefix) {
    for (std::size_t i = 0; i < n; ++i) out[i] += counts[i];
    if (prefix)
        for (std::size_t i = 0; i < n; ++i) prefix[i] += counts[i];
    for (std::size_t i = 0; i < n; ++i) counts[i] = 0;
}
AXIL_VERSIONS(hand_on, (std::int32_t* counts, std::size_t n, double* out, std::int32_t* prefix),
              (counts, n, out, prefix))
AXIL_VERSIONS(hand_on, (double* counts, std::size_t n, double* out, double* prefix), (counts, n, out, prefix))

// A row to be counted, by its leaves and weight.
template <class Leaf, class Count>
struct Counted {
    const Leaf* leaves;
    Count weight;
};

// Count two rows in some trees. Not inlined: among too much else its loop runs out of registers.
template <class Leaf, class Count>
AXIL_NOINLINE void count_two(Counted<Leaf, Count> a, Counted<Leaf, Count> b, const std::int64_t* starts,
                             std::size_t trees, Count* counts) {
    for (std::size_t t = 0; t < trees; ++t) {
        Count* of_tree = counts + (starts[t] - starts[0]);
        of_tree[a.leaves[t]] += a.weight;
        of_tree[b.leaves[t]] += b.weight;
    }
}

// The part of the result that some trees have with all later ones. Without weights Count is an integer: faster.
template <class Leaf, class Count>
class Block {
public:
    Block(const Leaves<Leaf>& all, const Slab<Leaf>& slab, double* out) : all_(all), slab_(slab), out_(out) {}

    // Fill the rows of the result that belong to the trees s .. s_end - 1, joining as many of them as is best.
    void fill(std::size_t s, std::size_t s_end) {
        while (s < s_end) {
            const std::size_t depth = sort(s, s_end);
            walk(s, depth);
            s += depth;
        }
    }

    // Sort the rows by joint cells of trees from s on, before s_end; returns how many trees are best joined.
    std::size_t sort(std::size_t s, std::size_t s_end) {
        const std::size_t depth = sortable(s, s_end);
        order_.sort(all_, slab_, s, depth);
        return best_depth(order_.count_cells(all_, s, depth), s, depth);
    }

private:
    // How many trees from s on have joint cells that are numbered in 32 bits.
    std::size_t sortable(std::size_t s, std::size_t s_end) const {
        std::size_t depth = 1;
        std::uint64_t cells = all_.count(s);
        while (depth < most_depth && s + depth < s_end && (cells *= all_.count(s + depth)) >> 32 == 0) ++depth;
        return depth;
    }

    // The depth of least cost per tree.
    std::size_t best_depth(const Cells& cells, std::size_t s, std::size_t depth) const {
        std::size_t best = 0;
        double least = 0, handed_on = 0;
        for (std::size_t k = 1; k <= depth; ++k) {
            const auto trees = static_cast<double>(all_.trees - s - k);
            const auto leaves = static_cast<double>(all_.total() - all_.start(s + k));
            handed_on += static_cast<double>(cells[k]);
            const double row_cost = k == 1 ? pair_cost * trees : sort_cost + count_cost * trees;
            const double cost = static_cast<double>(slab_.rows) * row_cost + handed_on * hand_on_cost * leaves;
            if (best == 0 || cost / static_cast<double>(k) < least) best = k, least = cost / static_cast<double>(k);
        }
        return best;
    }

    // Go through the joint cells of `depth` trees from s on.
    void walk(std::size_t s, std::size_t depth) {
        const std::size_t later = all_.start(s + depth), n = all_.total() - later;
        std::vector<std::vector<Count>> counts(depth + 1, std::vector<Count>(n));
        const auto& members = order_.members();
        for (std::size_t begin = 0, end; begin < members.size(); begin = end) {
            end = begin + 1;
            while (end < members.size() && members[end].cell > depth) ++end;
            const Leaf* leaves = slab_.row(members[begin].row) + s;
            add_pairs(s, depth, leaves, count(s + depth, begin, end, counts[depth].data()));
            const std::size_t change = end < members.size() ? members[end].cell : 1;
            for (std::size_t k = depth; k >= change; --k)
                hand_on(counts[k].data(), n, row_of(s + k - 1, leaves[k - 1]) + later,
                        k > 1 ? counts[k - 1].data() : nullptr);
        }
    }

    double* row_of(std::size_t t, std::size_t leaf) const { return out_ + (all_.start(t) + leaf) * all_.total(); }

    // Count the members begin .. end - 1, the rows of one cell, in all trees from t on; returns their weight.
    double count(std::size_t t, std::size_t begin, std::size_t end, Count* counts) const {
        constexpr std::size_t line = 64 / sizeof(Leaf);
        const auto& members = order_.members();
        double weight = 0;
        for (std::size_t i = begin; i < end; i += 2) {
            // The rows of a cell are scattered over the slab. (In a function of its own GCC 12 drops the prefetch.)
            for (std::size_t k = i + ahead; k < std::min(i + ahead + 2, members.size()); ++k)
                for (std::size_t u = t; u < all_.trees; u += line) AXIL_PREFETCH_READ(slab_.row(members[k].row) + u);
            const bool two = i + 1 < end;
            const std::size_t a = members[i].row, b = members[i + two].row;
            const double weight_a = slab_.weight(a), weight_b = two ? slab_.weight(b) : 0.0;
            count_two<Leaf, Count>({slab_.row(a) + t, static_cast<Count>(weight_a)},
                                   {slab_.row(b) + t, static_cast<Count>(weight_b)}, all_.starts + t, all_.trees - t,
                                   counts);
            weight += weight_a + weight_b;
        }
        return weight;
    }

    // The pairs among the joined trees themselves.
    void add_pairs(std::size_t s, std::size_t depth, const Leaf* leaves, double weight) const {
        for (std::size_t a = 0; a < depth; ++a)
            for (std::size_t b = a + 1; b < depth; ++b)
                row_of(s + a, leaves[a])[all_.start(s + b) + leaves[b]] += weight;
    }

    const Leaves<Leaf>& all_;
    const Slab<Leaf>& slab_;
    double* out_;
    Order order_;
};

// Where joining does not pay: every pair of trees by itself, the rows in their own order.
template <class Leaf>
void count_pairs(const Leaves<Leaf>& all, const Slab<Leaf>& slab, double* out, const Crew& crew) {
    const std::size_t total = all.total();
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t s = 0; s < all.trees; ++s)
        for (std::size_t t = s + 1; t < all.trees; ++t) pairs.emplace_back(s, t);
    parallel(crew, pairs.size(), [&](std::size_t i, std::size_t) {
        const auto [s, t] = pairs[i];
        const Leaf *earlier = all.tree(s) + slab.first, *later = all.tree(t) + slab.first;
        double* corner = out + all.start(s) * total + all.start(t);
        for (std::size_t j = 0; j < slab.rows; ++j) corner[earlier[j] * total + later[j]] += slab.weight(j);
    });
}

// Add the rows of one slab to the result.
template <class Count, class Leaf>
void add(const Leaves<Leaf>& leaves, Slab<Leaf>& slab, double* out, const Crew& crew) {
    // The trees in the middle stand for all when it comes to how many are best joined; few are not worth sorting for.
    const std::size_t middle = (leaves.trees - std::min(leaves.trees, most_depth)) / 2;
    const bool few = leaves.trees <= few_trees;
    const std::size_t depth = few ? 1 : Block<Leaf, Count>(leaves, slab, out).sort(middle, leaves.trees);
    if (depth == 1) return count_pairs(leaves, slab, out, crew);
    slab.leaves.resize(slab.rows * slab.trees);
    const Chunks chunks(slab.rows, 1024, 64);
    parallel(crew, chunks.count(),
             [&](std::size_t i, std::size_t) { transpose(leaves, chunks.begin(i), chunks.end(i), slab); });
    parallel(crew, (leaves.trees + depth - 1) / depth, [&](std::size_t i, std::size_t) {
        Block<Leaf, Count>(leaves, slab, out).fill(i * depth, std::min((i + 1) * depth, leaves.trees));
    });
}

}  // namespace joining

template <class Leaf>
void cooccurrence(const Leaves<Leaf>& leaves, const double* weights, double* out, const Crew& crew) {
    using namespace joining;
    const std::size_t total = leaves.total();
    parallel(crew, leaves.trees, [&](std::size_t t, std::size_t) {
        std::fill(out + leaves.start(t) * total, out + leaves.start(t + 1) * total, 0.0);
    });
    if (leaves.trees < 2) return;

    Slab<Leaf> slab;
    slab.trees = leaves.trees;
    const std::size_t most_rows = std::clamp<std::size_t>(slab_bytes / sizeof(Leaf) / leaves.trees, 1, slab_rows);
    const std::size_t n_slabs = (leaves.rows + most_rows - 1) / most_rows;
    for (std::size_t i = 0; i < n_slabs; ++i) {
        slab.first = leaves.rows * i / n_slabs;
        slab.rows = leaves.rows * (i + 1) / n_slabs - slab.first;
        slab.weights = weights ? weights + slab.first : nullptr;
        if (weights)
            add<double>(leaves, slab, out, crew);
        else
            add<std::int32_t>(leaves, slab, out, crew);
    }
}

AXIL_INSTANTIATE(cooccurrence)

}  // namespace axil
