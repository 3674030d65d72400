// descend: the leaf of every row in every tree, by following its way down.
//
// For trees of many leaves, of which a row meets few nodes: assign.cpp has every node look at every row. Some rows are on
// their way at a time, so that the loads of one do not wait for those of another. Children lie side by side, so that nothing
// branches: a comparison is added to the place of the left one. A leaf is its own child: rows that have arrived stay there.
#include <algorithm>
#include <limits>
#include <vector>

#include "buffer.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {
namespace descending {

constexpr std::size_t rows_per_task = 32768;  // of one tree, whose nodes stay in the caches meanwhile
constexpr std::size_t together = 16;          // rows on their way
constexpr std::size_t unasked = 3;            // steps between two questions whether all have arrived
constexpr std::size_t steps_per_node = 8;     // of a row alone, in the time that it takes to place a node

// A node or a leaf.
struct Place {
    float threshold;
    std::uint32_t feature, left;  // left: where the children are, the right one after it
};

struct Tree {
    BufferOf<Place> places;
    BufferOf<std::uint32_t> leaves;        // (places,)
    BufferOf<std::uint8_t> missing_right;  // (places,)

    Tree(const Ways& ways, std::size_t first, std::size_t last)
        : places(2 * (last - first) + 1), leaves(2 * (last - first) + 1), missing_right(2 * (last - first) + 1) {
        std::vector<std::uint32_t> at(last - first);  // the place of each node
        Place* place = places.get();
        std::uint32_t next = 1;
        for (std::size_t i = first; i < last; ++i) {
            const std::int32_t feature = ways.features[i];
            const std::uint32_t own = at[i - first];
            place[own] = {ways.thresholds[i], static_cast<std::uint32_t>(feature < 0 ? ~feature : feature), next};
            missing_right.get()[own] = feature >= 0;
            for (std::size_t side = 0; side < 2; ++side, ++next) {
                const std::int32_t child = ways.children[2 * i + side];
                if (child >= 0) {
                    at[static_cast<std::size_t>(child)] = next;
                } else {
                    place[next] = {std::numeric_limits<float>::infinity(), 0, next};
                    leaves.get()[next] = static_cast<std::uint32_t>(~child);
                    missing_right.get()[next] = 0;
                }
            }
        }
    }
};

// The leaf of one row, without any preparation.
std::int32_t leaf_of(const Ways& ways, std::size_t first, const float* row) {
    std::int32_t at = 0;
    while (at >= 0) {
        const std::size_t node = first + static_cast<std::size_t>(at);
        const std::int32_t feature = ways.features[node];
        const float value = row[feature < 0 ? ~feature : feature];
        at = ways.children[2 * node + (value != value ? feature >= 0 : value > ways.thresholds[node])];
    }
    return ~at;
}

// The leaves of rows, `stride` numbers apart; `missing`: whether there may be missing values.
template <bool missing, class Leaf>
void follow(const Tree& tree, const float* rows, std::ptrdiff_t stride, std::size_t n, Leaf* out) {
    const Place* places = tree.places.get();
    for (std::size_t begin = 0; begin < n; begin += together) {
        const float* row[together];
        std::uint32_t at[together] = {}, moving = 1;
        for (std::size_t lane = 0; lane < together; ++lane)  // the last row fills up the lanes
            row[lane] = rows + static_cast<std::ptrdiff_t>(std::min(begin + lane, n - 1)) * stride;
        const auto step = [&](std::size_t lane) AXIL_INLINE_LAMBDA {
            const std::uint32_t here = at[lane];
            const Place& place = places[here];
            const float value = row[lane][place.feature];
            std::uint32_t right = value > place.threshold;
            if constexpr (missing) right = value != value ? tree.missing_right.get()[here] : right;
            at[lane] = place.left + right;
            return place.left ^ here;
        };
        while (moving) {
            moving = 0;
            for (std::size_t i = 0; i < unasked; ++i)
                for (std::size_t lane = 0; lane < together; ++lane) step(lane);
            for (std::size_t lane = 0; lane < together; ++lane) moving |= step(lane);
        }
        for (std::size_t lane = 0; lane < std::min(together, n - begin); ++lane)
            out[begin + lane] = static_cast<Leaf>(tree.leaves.get()[at[lane]]);
    }
}

}  // namespace descending

template <class Leaf>
void descend(const Ways& ways, const Table<float>& table, std::size_t columns, const Output<Leaf>& out,
             const Crew& crew) {
    using namespace descending;
    const std::size_t chunks = (table.rows + rows_per_task - 1) / rows_per_task;
    const std::size_t trees = ways.trees;
    std::vector<Tree> made;
    const std::size_t nodes_per_tree = static_cast<std::size_t>(ways.starts[trees]) / std::max<std::size_t>(trees, 1);
    const bool alone = table.rows * steps_per_node < nodes_per_tree;
    for (std::size_t t = 0; t < trees && !alone; ++t)
        made.emplace_back(ways, static_cast<std::size_t>(ways.starts[t]), static_cast<std::size_t>(ways.starts[t + 1]));
    const bool copied = table.column_stride != 1;
    const BufferOf<float> copy(copied ? table.rows * columns : 0);
    const float* rows = copied ? copy.get() : table.data;
    const std::ptrdiff_t stride = copied ? static_cast<std::ptrdiff_t>(columns) : table.row_stride;
    std::vector<char> missing(chunks);
    parallel(crew, chunks, [&](std::size_t chunk, std::size_t) {
        const std::size_t begin = chunk * rows_per_task, end = std::min(begin + rows_per_task, table.rows);
        bool any = false;
        for (std::size_t r = begin; r < end; ++r)
            for (std::size_t c = 0; c < columns; ++c) {
                const float value = table.data[static_cast<std::ptrdiff_t>(r) * table.row_stride +
                                               static_cast<std::ptrdiff_t>(c) * table.column_stride];
                any = any || value != value;
                if (copied) copy.get()[r * columns + c] = value;
            }
        missing[chunk] = any;
    });
    parallel(crew, chunks * trees, [&](std::size_t task, std::size_t) {
        const std::size_t chunk = task / trees, t = task % trees, begin = chunk * rows_per_task;
        const std::size_t n = std::min(rows_per_task, table.rows - begin);
        Leaf* to = out.data + static_cast<std::ptrdiff_t>(t) * out.tree_stride + begin;
        const float* own = rows + static_cast<std::ptrdiff_t>(begin) * stride;
        const auto first = static_cast<std::size_t>(ways.starts[t]);
        if (ways.starts[t + 1] == ways.starts[t])
            std::fill_n(to, n, Leaf(0));
        else if (alone)
            for (std::size_t r = 0; r < n; ++r)
                to[r] = static_cast<Leaf>(leaf_of(ways, first, own + static_cast<std::ptrdiff_t>(r) * stride));
        else
            missing[chunk] ? follow<true>(made[t], own, stride, n, to) : follow<false>(made[t], own, stride, n, to);
    });
}

AXIL_INSTANTIATE(descend)

}  // namespace axil
