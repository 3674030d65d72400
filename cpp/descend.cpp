// descend: the leaf of every row in every tree, by following its way down.
//
// For trees of many leaves, of which a row meets few nodes: assign.cpp has every node look at every row. Some rows are on
// their way at a time, so that the loads of one do not wait for those of another; one that arrives makes room for the next.
#include <algorithm>
#include <vector>

#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {
namespace descending {

constexpr std::size_t rows_per_task = 32768;  // of one tree, whose nodes stay in the caches meanwhile
constexpr std::size_t together = 8;           // rows on their way

struct Branch {
    float threshold;
    std::uint32_t feature;
    std::int32_t children[2];  // left and right
};

// The way of a row from the root on; `missing`: whether there may be missing values.
template <bool missing>
AXIL_INLINE std::int32_t step(const Branch& branch, const std::int32_t feature, const float* row,
                              std::ptrdiff_t column_stride) {
    const float value = row[static_cast<std::ptrdiff_t>(branch.feature) * column_stride];
    bool right = value > branch.threshold;
    if constexpr (missing) right = value != value ? feature >= 0 : right;
    return branch.children[right];
}

template <bool missing, class Leaf>
void follow(const std::vector<Branch>& branches, const std::int32_t* features, const Table<float>& table,
            std::size_t begin, std::size_t end, Leaf* out) {
    const float* row[together];
    std::size_t number[together];
    std::int32_t at[together];
    std::size_t next = begin, active = 0;
    const auto enter = [&](std::size_t lane) {
        number[lane] = next;
        row[lane] = table.data + static_cast<std::ptrdiff_t>(next) * table.row_stride;
        at[lane] = 0;
        ++next;
    };
    while (active < together && next < end) enter(active++);
    while (active == together) {
        for (std::size_t lane = 0; lane < together; ++lane) {
            const auto i = static_cast<std::size_t>(at[lane]);
            at[lane] = step<missing>(branches[i], features[i], row[lane], table.column_stride);
        }
        for (std::size_t lane = 0; lane < together; ++lane) {
            if (at[lane] >= 0) continue;
            out[number[lane]] = static_cast<Leaf>(~at[lane]);
            if (next == end) {
                --active;  // the rest goes on alone
                at[lane] = -1;
                number[lane] = end;
            } else {
                enter(lane);
            }
        }
    }
    const std::size_t lanes = std::min(together, end - begin);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        if (number[lane] == end) continue;
        std::int32_t i = at[lane];
        while (i >= 0) {
            const auto place = static_cast<std::size_t>(i);
            i = step<missing>(branches[place], features[place], row[lane], table.column_stride);
        }
        out[number[lane]] = static_cast<Leaf>(~i);
    }
}

}  // namespace descending

template <class Leaf>
void descend(const Ways& ways, const Table<float>& table, std::size_t columns, const Output<Leaf>& out,
             const Crew& crew) {
    using namespace descending;
    const std::size_t chunks = (table.rows + rows_per_task - 1) / rows_per_task;
    std::vector<std::vector<Branch>> trees;
    for (std::size_t t = 0; t < ways.trees; ++t) {
        std::vector<Branch> branches;
        for (auto i = static_cast<std::size_t>(ways.starts[t]); i < static_cast<std::size_t>(ways.starts[t + 1]); ++i) {
            const std::int32_t feature = ways.features[i];
            branches.push_back({ways.thresholds[i],
                                static_cast<std::uint32_t>(feature < 0 ? ~feature : feature),
                                {ways.children[2 * i], ways.children[2 * i + 1]}});
        }
        trees.push_back(std::move(branches));
    }
    std::vector<char> missing(chunks);
    parallel(crew, chunks, [&](std::size_t chunk, std::size_t) {
        const std::size_t begin = chunk * rows_per_task, end = std::min(begin + rows_per_task, table.rows);
        bool any = false;
        for (std::size_t r = begin; r < end; ++r)
            for (std::size_t c = 0; c < columns; ++c) {
                const float value = table.data[static_cast<std::ptrdiff_t>(r) * table.row_stride +
                                               static_cast<std::ptrdiff_t>(c) * table.column_stride];
                any = any || value != value;
            }
        missing[chunk] = any;
    });
    parallel(crew, chunks * ways.trees, [&](std::size_t task, std::size_t) {
        const std::size_t chunk = task / ways.trees, t = task % ways.trees;
        const std::size_t begin = chunk * rows_per_task, end = std::min(begin + rows_per_task, table.rows);
        Leaf* to = out.data + static_cast<std::ptrdiff_t>(t) * out.tree_stride;
        const std::int32_t* features = ways.features + ways.starts[t];
        if (trees[t].empty())
            std::fill(to + begin, to + end, Leaf(0));
        else if (missing[chunk])
            follow<true>(trees[t], features, table, begin, end, to);
        else
            follow<false>(trees[t], features, table, begin, end, to);
    });
}

AXIL_INSTANTIATE(descend)

}  // namespace axil
