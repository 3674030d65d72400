// feature_differences: how much each feature puts into the difference of two predictions, F(x) - F(z).
//
// These are the Shapley values of the game in which a feature has its value of x once it has joined, and that of z before.
// A leaf of value v is reached by mixtures of x and z that take some features from x, the set A, and some from z, the set B;
// all other features on the way to the leaf send x and z the same way. Its game is v where all of A and none of B have joined:
//
//     each feature of A has   v (|A| - 1)! |B|! / (|A| + |B|)!,      each of B   -v |A|! (|B| - 1)! / (|A| + |B|)!
//
// A walk down a tree follows both branches where x and z part at a feature that has no side yet, and the branch of its side
// where it has one. Features of one group share their side.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels.hpp"

namespace axil {
namespace differing {

using Size = std::size_t;
using Code = std::uint16_t;

constexpr Size rows_per_task = 64;
constexpr double categories_end = double(1u << 30);  // as in assign.cpp: larger numbers are no categories

// A value as the library sees it.
double as_seen(const Routes& routes, double value) {
    if (routes.single) value = static_cast<double>(static_cast<float>(value));
    return std::fabs(value) <= routes.zero ? 0.0 : value;
}

// The number of thresholds of a column below a value, or up to it where tests are strict; 0 for a missing value.
Code rank_of(const Routes& routes, Size column, double value) {
    if (value != value) return 0;
    const double* first = routes.thresholds + routes.columns[2 * column + 1];
    const double* last = routes.thresholds + routes.columns[2 * column + 3];
    const double* place =
        routes.strict ? std::upper_bound(first, last, value) : std::lower_bound(first, last, value);
    return static_cast<Code>(place - first);
}

// The code of a value in a view: a test of rank r sends it left if the code is at most r. See `code_views` in assign.cpp.
Code code_of(const Routes& routes, const View& view, double value) {
    const auto column = static_cast<Size>(view.column);
    const auto beyond = static_cast<Code>(routes.columns[2 * column + 3] - routes.columns[2 * column + 1]);
    const bool missing = value != value;
    switch (view.kind) {
        case View::categories: {
            std::int64_t place = view.count + 1;
            if (!missing) {
                const bool is_category = value > -1 && value < categories_end;
                place = is_category ? std::min(static_cast<std::int64_t>(value), view.count) : view.count;
            }
            return routes.outcomes[view.first + place];
        }
        case View::zero_low: return missing || value == 0 ? Code(0) : rank_of(routes, column, value);
        case View::zero_high: return missing || value == 0 ? beyond : rank_of(routes, column, value);
        case View::missing_high: return missing ? beyond : rank_of(routes, column, value);
        case View::missing_zero: return rank_of(routes, column, missing ? 0.0 : value);
        default: return rank_of(routes, column, value);  // missing_low: the rank of a missing value is 0
    }
}

// The codes of all rows in all views, (rows, views).
std::vector<Code> codes_of(const Routes& routes, const Table<double>& table, const Crew& crew) {
    std::vector<Code> codes(table.rows * routes.n_views);
    parallel(crew, (table.rows + rows_per_task - 1) / rows_per_task, [&](Size task, Size) {
        for (Size r = task * rows_per_task; r < std::min((task + 1) * rows_per_task, table.rows); ++r)
            for (Size v = 0; v < routes.n_views; ++v) {
                const View& view = routes.views[v];
                const std::int64_t feature = routes.columns[2 * view.column];
                const double value = table.data[static_cast<std::ptrdiff_t>(r) * table.row_stride +
                                                static_cast<std::ptrdiff_t>(feature) * table.column_stride];
                codes[r * routes.n_views + v] = code_of(routes, view, as_seen(routes, value));
            }
    });
    return codes;
}

// The most groups that the tests on a way down any tree can name.
Size longest_way(const Routes& routes, Size n_groups) {
    Size longest = 0;
    std::vector<Size> depths;
    for (Size t = 0; t < routes.trees; ++t) {
        const auto begin = static_cast<Size>(routes.starts[t]), end = static_cast<Size>(routes.starts[t + 1]);
        depths.assign(end - begin, 1);
        for (Size i = 0; i < end - begin; ++i) {  // children come after their parents
            longest = std::max(longest, depths[i]);
            for (const std::int32_t child : {routes.nodes[begin + i].left, routes.nodes[begin + i].right})
                if (child >= 0) depths[static_cast<Size>(child)] = depths[i] + 1;
        }
    }
    return std::min(longest, n_groups);
}

// shares[a * (longest + 1) + b] = (a - 1)! b! / (a + b)!
std::vector<double> shares_of(Size longest) {
    const Size width = longest + 1;
    std::vector<double> shares(width * width);
    for (Size a = 1; a < width; ++a)
        for (Size b = 0; a + b < width; ++b)
            shares[a * width + b] = b ? shares[a * width + b - 1] * double(b) / double(a + b) : 1.0 / double(a);
    return shares;
}

enum class Side : std::uint8_t { none, query, row };

// One thread's walk through the trees for a pair.
class Walk {
public:
    Walk(const Routes& routes, const std::int32_t* group_of_view, const std::vector<double>& shares, Size longest,
         Size n_groups, const double* leaf_values, Size outputs)
        : routes_(routes), group_of_view_(group_of_view), shares_(shares), longest_(longest),
          leaf_values_(leaf_values), outputs_(outputs), sides_(n_groups), queries_(longest), rows_(longest) {}

    void pair(const Code* query, const Code* row, double* out) {
        query_ = query, row_ = row, out_ = out;
        for (Size t = 0; t < routes_.trees; ++t) {
            const Size begin = static_cast<Size>(routes_.starts[t]);
            if (static_cast<Size>(routes_.starts[t + 1]) == begin) continue;  // a tree of one leaf
            nodes_ = routes_.nodes + begin;
            values_ = leaf_values_ + (begin + t) * outputs_;  // a tree has one leaf more than nodes
            follow(0, 0, 0);
        }
    }

private:
    void follow(std::int32_t here, Size n_queries, Size n_rows) {
        while (here >= 0) {
            const Node& node = nodes_[here];
            const std::int32_t of_query = query_[node.view] <= node.rank ? node.left : node.right;
            const std::int32_t of_row = row_[node.view] <= node.rank ? node.left : node.right;
            if (of_query == of_row) {
                here = of_query;
                continue;
            }
            const std::int32_t group = group_of_view_[node.view];
            Side& side = sides_[static_cast<Size>(group)];
            if (side == Side::none) {
                side = Side::query;
                queries_[n_queries] = group;
                follow(of_query, n_queries + 1, n_rows);
                side = Side::row;
                rows_[n_rows] = group;
                follow(of_row, n_queries, n_rows + 1);
                side = Side::none;
                return;
            }
            here = side == Side::query ? of_query : of_row;
        }
        add(values_ + static_cast<Size>(~here) * outputs_, n_queries, n_rows);
    }

    // Add a leaf that is reached with so many groups of the query and of the row.
    void add(const double* values, Size n_queries, Size n_rows) {
        const double gain = shares_[n_queries * (longest_ + 1) + n_rows];
        const double loss = -shares_[n_rows * (longest_ + 1) + n_queries];
        for (Size i = 0; i < n_queries; ++i) add_to(queries_[i], gain, values);
        for (Size i = 0; i < n_rows; ++i) add_to(rows_[i], loss, values);
    }

    void add_to(std::int32_t group, double share, const double* values) {
        double* out = out_ + static_cast<Size>(group) * outputs_;
        for (Size k = 0; k < outputs_; ++k) out[k] += share * values[k];
    }

    const Routes& routes_;
    const std::int32_t* group_of_view_;
    const std::vector<double>& shares_;
    const Size longest_;
    const double* leaf_values_;
    const Size outputs_;
    std::vector<Side> sides_;                 // (groups,)
    std::vector<std::int32_t> queries_, rows_;  // the groups of either side on the way to here
    const Code *query_ = nullptr, *row_ = nullptr;
    const Node* nodes_ = nullptr;
    const double* values_ = nullptr;
    double* out_ = nullptr;
};

}  // namespace differing

void feature_differences(const Routes& routes, const Table<double>& queries, const Table<double>& rows,
                         const std::int64_t* pairs, std::size_t n_pairs, const std::int32_t* groups,
                         std::size_t n_groups, const double* leaf_values, std::size_t outputs, double* out,
                         const Crew& crew) {
    using namespace differing;
    const std::vector<Code> query_codes = codes_of(routes, queries, crew), row_codes = codes_of(routes, rows, crew);
    std::vector<std::int32_t> group_of_view(routes.n_views);
    for (Size v = 0; v < routes.n_views; ++v)
        group_of_view[v] = groups[routes.columns[2 * routes.views[v].column]];
    const Size longest = longest_way(routes, n_groups);
    const std::vector<double> shares = shares_of(longest);
    std::vector<Walk> walks;
    for (Size i = 0; i < std::max<Size>(std::min(crew.n_threads, n_pairs), 1); ++i)
        walks.emplace_back(routes, group_of_view.data(), shares, longest, n_groups, leaf_values, outputs);
    parallel(crew, n_pairs, [&](Size i, Size thread) {
        walks[thread].pair(query_codes.data() + static_cast<Size>(pairs[2 * i]) * routes.n_views,
                           row_codes.data() + static_cast<Size>(pairs[2 * i + 1]) * routes.n_views,
                           out + i * n_groups * outputs);
    });
}

}  // namespace axil
