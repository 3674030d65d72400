// Joint cells: the rows with the same leaves in some consecutive trees.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace axil {
namespace joining {

constexpr std::size_t most_depth = 6;  // trees joined at most

// Some consecutive rows, copied so that the leaves of a row lie together.
template <class Leaf>
struct Slab {
    std::vector<Leaf> leaves;  // (rows, trees)
    std::size_t first = 0, rows = 0, trees = 0;
    const double* weights = nullptr;

    const Leaf* row(std::size_t j) const { return leaves.data() + j * trees; }
    double weight(std::size_t j) const { return weights ? weights[j] : 1.0; }
};

template <class Leaf>
void transpose(const Leaves<Leaf>& all, std::size_t begin, std::size_t end, Slab<Leaf>& slab) {
    constexpr std::size_t step = 256;
    const std::size_t trees = all.trees;
    for (; begin < end; begin += step) {
        const std::size_t n = std::min(step, end - begin);
        for (std::size_t t = 0; t < trees; ++t) {
            const Leaf* from = all.tree(t) + slab.first + begin;
            Leaf* to = slab.leaves.data() + begin * trees + t;
            for (std::size_t j = 0; j < n; ++j) to[j * trees] = from[j];
        }
    }
}

using Cells = std::array<std::size_t, most_depth + 1>;  // how many there are of each depth

// A row, and its joint cell; once sorted, the depth at which its cell differs from that of the row before.
struct Member {
    std::uint32_t cell, row;
};

// The rows of a slab in the order of their joint cells.
class Order {
public:
    // Sort by the trees s .. s + depth - 1.
    template <class Leaf>
    void sort(const Leaves<Leaf>& all, const Slab<Leaf>& slab, std::size_t s, std::size_t depth) {
        members_.resize(slab.rows);
        other_.resize(slab.rows);
        for (std::size_t j = 0; j < slab.rows; ++j) members_[j] = {0, static_cast<std::uint32_t>(j)};
        std::uint64_t cells = 1;
        for (std::size_t k = s; k < s + depth; ++k) {
            const auto n = static_cast<std::uint32_t>(all.count(k));
            const Leaf* leaves = all.tree(k) + slab.first;
            for (std::size_t j = 0; j < slab.rows; ++j) members_[j].cell = members_[j].cell * n + leaves[j];
            cells *= n;
        }
        for (unsigned shift = 0; cells > std::uint64_t(1) << shift; shift += digit_bits) sort_by_digit(shift);
    }

    // Replace each cell by the depth at which it differs from the one before, 1 to depth (depth + 1: not at all).
    // Returns how many cells there are of each depth.
    template <class Leaf>
    Cells count_cells(const Leaves<Leaf>& all, std::size_t s, std::size_t depth) {
        Cells counts;
        counts.fill(1);
        std::uint32_t before = members_[0].cell;
        for (Member& member : members_) {
            const std::uint32_t cell = member.cell;
            std::size_t change = depth + 1;
            for (std::uint32_t a = cell, b = before; a != b && change > 1; --change) {
                a /= static_cast<std::uint32_t>(all.count(s + change - 2));
                b /= static_cast<std::uint32_t>(all.count(s + change - 2));
            }
            for (std::size_t k = change; k <= depth; ++k) ++counts[k];
            before = cell;
            member.cell = static_cast<std::uint32_t>(change);
        }
        return counts;
    }

    const std::vector<Member>& members() const { return members_; }

private:
    static constexpr unsigned digit_bits = 11;

    void sort_by_digit(unsigned shift) {
        constexpr std::uint32_t mask = (1u << digit_bits) - 1;
        std::array<std::uint32_t, mask + 2> places{};
        for (const Member& member : members_) ++places[(member.cell >> shift & mask) + 1];
        for (std::size_t d = 1; d <= mask; ++d) places[d] += places[d - 1];
        for (const Member& member : members_) other_[places[member.cell >> shift & mask]++] = member;
        members_.swap(other_);
    }

    std::vector<Member> members_, other_;
};

}  // namespace joining
}  // namespace axil
