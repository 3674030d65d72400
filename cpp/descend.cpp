// descend: the leaf of every row in every tree, by following its way down.
//
// For trees of many leaves, of which a row meets few nodes: assign.cpp has every node look at every row. Some rows are on
// their way at a time, so that the loads of one do not wait for those of another. Children lie side by side, so that nothing
// branches: a comparison is added to the place of the left one. A leaf is its own child: rows that have arrived stay there until
// they are left out.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {
namespace descending {

constexpr std::size_t rows_per_task = 32768;  // of one tree, whose nodes stay in the caches meanwhile
constexpr std::size_t together = 16;          // rows on their way
constexpr std::size_t batch = 256;            // rows, of which those that have arrived are left out now and then
constexpr std::size_t at_first = 13;          // steps until that is done for the first time
constexpr std::size_t after = 4;              // steps between two times

// The largest number of single precision that is not above this one.
float rounded_down(double number) {
    const auto near = static_cast<float>(number);
    return near > number ? std::nextafter(near, -std::numeric_limits<float>::infinity()) : near;
}

// The leaves of rows, `stride` numbers apart; `missing`: whether there may be missing values.
template <bool missing, class Leaf>
void follow(const Ways::Tree& tree, const float* rows, std::ptrdiff_t stride, std::size_t n, Leaf* out) {
    const Ways::Place* places = tree.places.get();
    const auto move = [&](std::uint32_t here, const float* row) AXIL_INLINE_LAMBDA {
        const Ways::Place& place = places[here];
        const float value = row[place.feature];
        std::uint32_t right = value > place.threshold;
        if constexpr (missing) right = value != value ? tree.missing_right.get()[here] : right;
        return place.left + right;
    };
    std::uint32_t at[batch + together], which[batch + together];  // places and rows; the last fill up the lanes
    for (std::size_t begin = 0; begin < n; begin += batch) {
        std::size_t moving = std::min(batch, n - begin);
        for (std::size_t i = 0; i < moving; ++i) at[i] = 0, which[i] = static_cast<std::uint32_t>(i);
        for (std::size_t steps = at_first; moving; steps = after) {
            std::fill_n(at + moving, together, 0);
            std::fill_n(which + moving, together, 0);
            for (std::size_t first = 0; first < moving; first += together) {
                const float* row[together];
                std::uint32_t here[together];
                for (std::size_t lane = 0; lane < together; ++lane) {
                    row[lane] = rows + static_cast<std::ptrdiff_t>(begin + which[first + lane]) * stride;
                    here[lane] = at[first + lane];
                }
                for (std::size_t i = 0; i < steps; ++i)
                    for (std::size_t lane = 0; lane < together; ++lane) here[lane] = move(here[lane], row[lane]);
                std::copy_n(here, together, at + first);
            }
            std::size_t left = 0;
            for (std::size_t i = 0; i < moving; ++i) {
                const std::uint32_t here = at[i], row = which[i];
                out[begin + row] = static_cast<Leaf>(tree.leaves.get()[here]);  // of a node: written over later
                at[left] = here, which[left] = row;
                left += places[here].left != here;
            }
            moving = left;
        }
    }
}

}  // namespace descending

bool Ways::add(const TreeNodes& nodes) {
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max() / 2;
    if (nodes.size < 1 || nodes.size > most) return false;
    Tree tree(nodes.size);
    std::vector<std::uint32_t> at(nodes.size);  // the place of each node
    std::uint32_t next = 1, leaf = 0;
    std::size_t wide = 0;
    for (std::size_t i = 0; i < nodes.size; ++i) {
        const std::uint32_t own = at[i];
        if (i && !own) return false;  // without a parent
        Place& place = tree.places.get()[own];
        const bool ends = nodes.left[i] == -1 && nodes.right[i] == -1;
        tree.missing_right.get()[own] = !ends && !nodes.missing_left[i];
        tree.leaves.get()[own] = leaf;
        if (ends) {
            place = {std::numeric_limits<float>::infinity(), 0, own};
            ++leaf;
            continue;
        }
        const std::int64_t feature = nodes.features[i];
        if (feature < 0 || feature > std::numeric_limits<std::int32_t>::max()) return false;
        place = {descending::rounded_down(nodes.thresholds[i]), static_cast<std::uint32_t>(feature), next};
        wide = std::max(wide, static_cast<std::size_t>(feature) + 1);
        for (const std::int64_t child : {nodes.left[i], nodes.right[i]}) {
            const auto number = static_cast<std::size_t>(child);
            if (child <= static_cast<std::int64_t>(i) || number >= nodes.size || at[number]) return false;
            at[number] = next++;
        }
    }
    trees.push_back(std::move(tree));
    features = std::max(features, wide);
    most_leaves = std::max<std::size_t>(most_leaves, leaf);
    return true;
}

template <class Leaf>
void descend(const Ways& ways, const Table<float>& table, std::size_t columns, const Output<Leaf>& out,
             const Crew& crew) {
    using namespace descending;
    const std::size_t chunks = (table.rows + rows_per_task - 1) / rows_per_task;
    const std::size_t trees = ways.trees.size();
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
        const Ways::Tree& tree = ways.trees[t];
        missing[chunk] ? follow<true>(tree, own, stride, n, to) : follow<false>(tree, own, stride, n, to);
    });
}

AXIL_INSTANTIATE(descend)

}  // namespace axil
