// assign: the leaf of every row in every tree, from the trees' own tests.
//
// A test compares a value with one of the few thresholds that the trees have for its column, so a value is as good as its
// rank among them: one code a value, found once for all trees. A tree is then evaluated from the leaves up, for a block of
// rows together: every node selects, row by row, what its left or its right child found. No branch, no chain of loads.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {
namespace assigning {

constexpr std::size_t block = 512;  // rows: their codes and the nodes' findings stay in the first-level cache
constexpr std::size_t blocks_per_task = 8;

using Size = std::size_t;

// Column by column what all blocks need.
struct Column {
    Size feature, first, count;  // its thresholds
    std::vector<double> search;  // the same, filled up to a power of two less one
    Size bits, rank_of_zero;
};

// What a node does: dst = code <= rank ? left : right; operands below zero are leaves (~leaf), others places.
struct Step {
    std::uint32_t view, rank;
    std::int32_t left, right, place;
};

struct Plan {
    const Routes& routes;
    std::vector<Column> columns;
    std::vector<std::vector<Step>> programs;  // tree by tree, children before parents; a tree of one leaf has no steps
    Size places;
    bool wide;               // codes take two bytes
    std::vector<bool> used;  // views that these trees look at
};

Column column_of(const Routes& routes, Size c) {
    Column column{static_cast<Size>(routes.columns[2 * c]), static_cast<Size>(routes.columns[2 * c + 1]), 0, {}, 0, 0};
    column.count = static_cast<Size>(routes.columns[2 * c + 3]) - column.first;
    while ((Size(1) << column.bits) <= column.count) ++column.bits;
    column.search.assign((Size(1) << column.bits), std::numeric_limits<double>::quiet_NaN());  // below nothing
    std::copy_n(routes.thresholds + column.first, column.count, column.search.begin());
    for (Size i = 0; i < column.count; ++i) {
        const double threshold = column.search[i];
        column.rank_of_zero += routes.strict ? threshold <= 0 : threshold < 0;
    }
    return column;
}

// Order the nodes of a tree so that few findings are held at a time: of two children the one that needs more goes first.
std::vector<Step> program_of(const Routes& routes, Size tree, Size& most_places) {
    const Size begin = static_cast<Size>(routes.starts[tree]), end = static_cast<Size>(routes.starts[tree + 1]);
    const Size n = end - begin;
    const Node* nodes = routes.nodes + begin;
    std::vector<std::int32_t> needs(n);
    for (Size i = n; i-- > 0;) {
        const auto need = [&](std::int32_t child) { return child < 0 ? 0 : needs[static_cast<Size>(child)]; };
        const std::int32_t left = need(nodes[i].left), right = need(nodes[i].right);
        needs[i] = left == right ? left + 1 : std::max(left, right);
    }
    std::vector<Step> program;
    program.reserve(n);
    std::vector<std::int32_t> found(n), free;
    std::int32_t places = 0;
    std::vector<std::pair<std::int32_t, bool>> stack;
    if (n) stack.emplace_back(0, false);
    while (!stack.empty()) {
        const auto [i, ready] = stack.back();
        stack.pop_back();
        const Node& node = nodes[i];
        if (!ready) {
            std::int32_t first = node.left, second = node.right;
            if (first >= 0 && second >= 0 && needs[static_cast<Size>(first)] < needs[static_cast<Size>(second)])
                std::swap(first, second);
            stack.emplace_back(i, true);
            if (second >= 0) stack.emplace_back(second, false);
            if (first >= 0) stack.emplace_back(first, false);
            continue;
        }
        if (free.empty()) free.push_back(places++);
        const std::int32_t place = free.back();  // never a child's own: what is read and written must not overlap
        free.pop_back();
        const auto operand = [&](std::int32_t child) {
            if (child < 0) return child;
            free.push_back(found[static_cast<Size>(child)]);
            return free.back();
        };
        const std::int32_t left = operand(node.left), right = operand(node.right);
        found[static_cast<Size>(i)] = place;
        program.push_back(
            {static_cast<std::uint32_t>(node.view), static_cast<std::uint32_t>(node.rank), left, right, place});
    }
    most_places = std::max(most_places, static_cast<Size>(places));
    return program;
}

Plan plan_of(const Routes& routes, Size most_leaves) {
    Plan plan{routes, {}, {}, 1, most_leaves > 256, std::vector<bool>(routes.n_views)};
    for (Size c = 0; c < routes.n_columns; ++c) {
        plan.columns.push_back(column_of(routes, c));
        plan.wide = plan.wide || plan.columns.back().count > 255;
    }
    for (Size t = 0; t < routes.trees; ++t) {
        plan.programs.push_back(program_of(routes, t, plan.places));
        for (const Step& step : plan.programs.back()) plan.used[step.view] = true;
    }
    return plan;
}

// One thread's block.
template <class Code>
struct Scratch {
    Buffer values;                    // (block,)
    BufferOf<std::int32_t> ranks;     // (block,)
    BufferOf<std::uint32_t> numbers;  // (block,): of categories
    BufferOf<Code> base;              // (columns, block): ranks of the values, those of missing ones 0
    BufferOf<Code> codes;             // (views, block): where a view has codes of its own
    BufferOf<Code> findings;          // (places, block)
    std::vector<const Code*> views;   // where the codes of each view are
    bool infinite = false;

    explicit Scratch(const Plan& plan)
        : values(block), ranks(block), numbers(block), base(plan.columns.size() * block),
          codes(plan.routes.n_views * block), findings(plan.places * block), views(plan.routes.n_views) {}
};

template <class Value>
void read_column(const Table<Value>& table, Size feature, Size begin, Size rows, double* values) {
    const Value* from = table.data + static_cast<std::ptrdiff_t>(begin) * table.row_stride +
                        static_cast<std::ptrdiff_t>(feature) * table.column_stride;
    if (table.row_stride == 1)
        for (Size r = 0; r < rows; ++r) values[r] = static_cast<double>(from[r]);
    else
        for (Size r = 0; r < rows; ++r)
            values[r] = static_cast<double>(from[static_cast<std::ptrdiff_t>(r) * table.row_stride]);
    std::fill(values + rows, values + block, 0.0);
}

struct Seen {
    bool missing, infinite;
};

// Values as the library sees them, and whether there are odd ones among them.
template <Size>
AXIL_INLINE void prepare_lanes(const Routes& routes, double* values, Seen& seen) {
    if (routes.single)
        for (Size r = 0; r < block; ++r) values[r] = static_cast<double>(static_cast<float>(values[r]));
    std::uint64_t missing = 0, infinite = 0;
    for (Size r = 0; r < block; ++r) {
        const double value = values[r], size = std::fabs(value);
        missing |= value != value ? 1 : 0;
        infinite |= size == std::numeric_limits<double>::infinity() ? 1 : 0;
        values[r] = size <= routes.zero ? 0.0 : value;
    }
    seen = {missing != 0, infinite != 0};
}

template <Size, class Code>
AXIL_INLINE void rank_lanes(const Column& column, bool strict, const double* values, std::int32_t* ranks, Code* codes) {
    const double* search = column.search.data();
    for (Size r = 0; r < block; ++r) ranks[r] = 0;
    for (Size bit = column.bits; bit-- > 0;) {
        const std::int32_t half = 1 << bit;
        if (strict)
            for (Size r = 0; r < block; ++r) ranks[r] += search[ranks[r] + half - 1] <= values[r] ? half : 0;
        else
            for (Size r = 0; r < block; ++r) ranks[r] += search[ranks[r] + half - 1] < values[r] ? half : 0;
    }
    for (Size r = 0; r < block; ++r) codes[r] = static_cast<Code>(ranks[r]);
}

// The codes of values that are missing are `other`; zeros count as missing where `zeros`.
template <Size, class Code>
AXIL_INLINE void mask_lanes(const double* values, const Code* base, Code other, bool zeros, Code* codes) {
    for (Size r = 0; r < block; ++r) {
        const bool missing = values[r] != values[r] || (zeros && values[r] == 0);
        codes[r] = missing ? other : base[r];
    }
}

template <Size, class Code>
AXIL_INLINE void run_lanes(const Step* step, const Step* end, const Code* const* views, Code* findings, Code* last) {
    for (; step != end; ++step) {
        const Code* code = views[step->view];
        const Code rank = static_cast<Code>(step->rank);
        Code* AXIL_RESTRICT to = step + 1 == end ? last : findings + static_cast<Size>(step->place) * block;
        const Code* left = findings + static_cast<Size>(std::max(step->left, 0)) * block;
        const Code* right = findings + static_cast<Size>(std::max(step->right, 0)) * block;
        const Code left_leaf = static_cast<Code>(~step->left), right_leaf = static_cast<Code>(~step->right);
        // Both sides are read whichever is chosen: a load that depends on the comparison would be slower.
        if (step->left < 0 && step->right < 0)
            for (Size r = 0; r < block; ++r) to[r] = code[r] <= rank ? left_leaf : right_leaf;
        else if (step->left < 0)
            for (Size r = 0; r < block; ++r) {
                const Code b = right[r];
                to[r] = code[r] <= rank ? left_leaf : b;
            }
        else if (step->right < 0)
            for (Size r = 0; r < block; ++r) {
                const Code a = left[r];
                to[r] = code[r] <= rank ? a : right_leaf;
            }
        else
            for (Size r = 0; r < block; ++r) {
                const Code a = left[r], b = right[r];
                to[r] = code[r] <= rank ? a : b;
            }
    }
}

constexpr std::uint32_t no_category = 1u << 30, missing_category = no_category + 1;

// The categories that values are: whole parts of numbers above -1.
template <Size>
AXIL_INLINE void number_lanes(const double* values, std::uint32_t* numbers) {
    for (Size r = 0; r < block; ++r) {
        const double value = values[r];
        const bool is_one = value > -1 && value < static_cast<double>(no_category);
        const auto number = static_cast<std::uint32_t>(static_cast<std::int32_t>(is_one ? value : 0.0));
        numbers[r] = value != value ? missing_category : is_one ? number : no_category;
    }
}

// The outcomes of a test on categories: left (0) or right (1), for each category, any other number, and missing values.
template <Size, class Code>
AXIL_INLINE void look_up_lanes(const std::uint32_t* numbers, const std::uint8_t* outcomes, Size categories,
                               Code* codes) {
    const auto most = static_cast<std::uint32_t>(categories);
    const auto place = [&](Size r) { return numbers[r] == missing_category ? most + 1 : std::min(numbers[r], most); };
    if (categories + 2 > 32) {
        for (Size r = 0; r < block; ++r) codes[r] = outcomes[place(r)];
        return;
    }
    std::uint32_t bits = 0;  // shifts of many rows go together, which loads do not
    for (Size i = 0; i < categories + 2; ++i) bits |= static_cast<std::uint32_t>(outcomes[i] != 0) << i;
    for (Size r = 0; r < block; ++r) codes[r] = static_cast<Code>(bits >> place(r) & 1u);
}

AXIL_VERSIONS(number, (const double* values, std::uint32_t* numbers), (values, numbers))
AXIL_VERSIONS(prepare, (const Routes& routes, double* values, Seen& seen), (routes, values, seen))
#define AXIL_CODE_VERSIONS(CODE)                                                                                       \
    AXIL_VERSIONS(rank, (const Column& column, bool strict, const double* values, std::int32_t* ranks, CODE* codes),   \
                  (column, strict, values, ranks, codes))                                                              \
    AXIL_VERSIONS(mask, (const double* values, const CODE* base, CODE other, bool zeros, CODE* codes),                 \
                  (values, base, other, zeros, codes))                                                                 \
    AXIL_VERSIONS(run, (const Step* step, const Step* end, const CODE* const* views, CODE* findings, CODE* last),      \
                  (step, end, views, findings, last))                                                                  \
    AXIL_VERSIONS(look_up, (const std::uint32_t* numbers, const std::uint8_t* outcomes, Size categories, CODE* codes), \
                  (numbers, outcomes, categories, codes))
AXIL_CODE_VERSIONS(std::uint8_t)
AXIL_CODE_VERSIONS(std::uint16_t)
#undef AXIL_CODE_VERSIONS

template <class Value, class Code>
void code_views(const Plan& plan, const Table<Value>& table, Size begin, Size rows, Scratch<Code>& scratch) {
    const Routes& routes = plan.routes;
    double* values = scratch.values.get();
    Size view = 0;  // views are in the order of their columns
    for (Size c = 0; c < plan.columns.size(); ++c) {
        const Column& column = plan.columns[c];
        read_column(table, column.feature, begin, rows, values);
        Seen seen;
        prepare(routes, values, seen);
        scratch.infinite = scratch.infinite || seen.infinite;
        Code* base = scratch.base.get() + c * block;
        rank(column, routes.strict, values, scratch.ranks.get(), base);
        bool numbered = false;
        for (; view < routes.n_views && static_cast<Size>(routes.views[view].column) == c; ++view) {
            if (!plan.used[view]) continue;
            const View& one = routes.views[view];
            Code* own = scratch.codes.get() + view * block;
            scratch.views[view] = own;
            const Code beyond = static_cast<Code>(column.count);
            switch (one.kind) {
                case View::categories:
                    if (!numbered) number(values, scratch.numbers.get());
                    numbered = true;
                    look_up(scratch.numbers.get(), routes.outcomes + one.first, static_cast<Size>(one.count), own);
                    break;
                case View::zero_low: mask(values, base, Code(0), true, own); break;
                case View::zero_high: mask(values, base, beyond, true, own); break;
                case View::missing_high:
                    if (seen.missing)
                        mask(values, base, beyond, false, own);
                    else
                        scratch.views[view] = base;
                    break;
                case View::missing_zero:
                    if (seen.missing)
                        mask(values, base, static_cast<Code>(column.rank_of_zero), false, own);
                    else
                        scratch.views[view] = base;
                    break;
                default: scratch.views[view] = base;  // missing_low: nothing is below a missing value, so its rank is 0
            }
        }
    }
}

template <class Code, class Leaf>
void run_trees(const Plan& plan, Size begin, Size rows, Scratch<Code>& scratch, const Output<Leaf>& out) {
    Code* findings = scratch.findings.get();
    for (Size t = 0; t < plan.programs.size(); ++t) {
        const auto& steps = plan.programs[t];
        Leaf* to = out.data + static_cast<std::ptrdiff_t>(t) * out.tree_stride + static_cast<std::ptrdiff_t>(begin);
        if (steps.empty()) {
            std::fill(to, to + rows, Leaf(0));
            continue;
        }
        Code* last = findings + static_cast<Size>(steps.back().place) * block;
        if constexpr (sizeof(Code) == sizeof(Leaf)) {
            if (rows == block) last = to;
        }
        run(steps.data(), steps.data() + steps.size(), scratch.views.data(), findings, last);
        if (static_cast<void*>(last) != static_cast<void*>(to))
            for (Size r = 0; r < rows; ++r) to[r] = static_cast<Leaf>(last[r]);
    }
}

template <class Code, class Value, class Leaf>
bool assign_all(const Plan& plan, const Table<Value>& table, const Output<Leaf>& out, const Crew& crew) {
    const Size step = block * blocks_per_task, tasks = (table.rows + step - 1) / step;
    std::vector<Scratch<Code>> scratch;
    for (Size i = 0; i < std::max<Size>(std::min(crew.n_threads, tasks), 1); ++i) scratch.emplace_back(plan);
    parallel(crew, tasks, [&](Size i, Size thread) {
        for (Size begin = i * step; begin < std::min((i + 1) * step, table.rows); begin += block) {
            const Size rows = std::min(block, table.rows - begin);
            code_views(plan, table, begin, rows, scratch[thread]);
            run_trees(plan, begin, rows, scratch[thread], out);
        }
    });
    return std::any_of(scratch.begin(), scratch.end(), [](const auto& one) { return one.infinite; });
}

}  // namespace assigning

template <class Value, class Leaf>
bool assign(const Routes& routes, const Table<Value>& table, const Output<Leaf>& out, const Crew& crew) {
    using namespace assigning;
    const Plan plan = plan_of(routes, std::size_t(std::numeric_limits<Leaf>::max()) + 1);
    if constexpr (sizeof(Leaf) == 1) {
        if (!plan.wide) return assign_all<std::uint8_t>(plan, table, out, crew);
    }
    return assign_all<std::uint16_t>(plan, table, out, crew);
}

#define AXIL_ASSIGN(VALUE, LEAF) \
    template bool assign(const Routes&, const Table<VALUE>&, const Output<LEAF>&, const Crew&);
AXIL_ASSIGN(double, std::uint8_t)
AXIL_ASSIGN(double, std::uint16_t)
AXIL_ASSIGN(float, std::uint8_t)
AXIL_ASSIGN(float, std::uint16_t)
#undef AXIL_ASSIGN

}  // namespace axil
