// The Python side of the kernels: checks shapes, releases the GIL, notices Ctrl-C. src/axil/_core.pyi documents them.
#include <cstdio>  // nanobind writes to stderr without it

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "blocks.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T, int N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Vector = Array<const double, 1>;
using Matrix = Array<const double, 2>;
using Numbers = Array<const std::int64_t, 1>;
using Maybe = std::optional<Vector>;

using std::to_string;

[[noreturn]] void refuse(const std::string& why) { throw nb::value_error(why.c_str()); }

void require_length(std::size_t found, std::size_t expected, const char* name) {
    if (found != expected)
        refuse(std::string(name) + " has length " + to_string(found) + " where " + to_string(expected) +
               " is expected.");
}

template <class T>
void require_shape(const Array<T, 2>& array, std::size_t rows, std::size_t columns, const char* name) {
    const auto shape = [](std::size_t a, std::size_t b) { return "(" + to_string(a) + ", " + to_string(b) + ")"; };
    if (array.shape(0) != rows || array.shape(1) != columns)
        refuse(std::string(name) + " has shape " + shape(array.shape(0), array.shape(1)) + " where " +
               shape(rows, columns) + " is expected.");
}

// Whether 0 <= first and first + count <= size; nothing is added, so nothing overflows.
bool fits(std::int64_t first, std::uint64_t count, std::uint64_t size) {
    return first >= 0 && count <= size && static_cast<std::uint64_t>(first) <= size - count;
}

bool within(std::int64_t i, std::uint64_t size) { return fits(i, 1, size); }

void require_rows(std::int64_t first, std::size_t rows, std::size_t all) {
    if (!fits(first, rows, all))
        refuse("out has " + to_string(rows) + " rows from " + to_string(first) + " on, but there are only " +
               to_string(all) + ".");
}

const double* pointer(const Maybe& weights, std::size_t rows, const char* name) {
    if (!weights) return nullptr;
    require_length(weights->shape(0), rows, name);
    return weights->data();
}

template <class Leaf>
axil::Leaves<Leaf> checked(const Array<const Leaf, 2>& leaves, const Numbers& starts) {
    const std::size_t trees = leaves.shape(0), rows = leaves.shape(1);
    require_length(starts.shape(0), trees + 1, "starts");
    if (starts.data()[0] != 0) refuse("starts must begin with 0.");
    for (std::size_t t = 0; t < trees; ++t) {
        const auto here = starts.data()[t], next = starts.data()[t + 1];
        if (next < here || (next == here && rows > 0))
            refuse("starts must increase: tree " + to_string(t) + " has no leaves.");
    }
    return {leaves.data(), starts.data(), trees, rows};
}

axil::TreeList checked(const Numbers& list, std::size_t trees, const char* name) {
    for (std::size_t i = 0; i < list.shape(0); ++i)
        if (!within(list.data()[i], trees))
            refuse(std::string(name) + " has tree " + to_string(list.data()[i]) + ", but there are " +
                   to_string(trees) + " trees.");
    return {list.data(), list.shape(0)};
}

// What Python calls while a kernel runs, to raise where the caller cancelled it; null: nothing. Set once, at import.
PyObject* poll = nullptr;

void on_poll(nb::callable callable) { poll = callable.release().ptr(); }

// Whether Python raised: for a signal, or because the caller cancelled.
bool interrupted() {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) return true;
    if (!poll) return false;
    PyObject* answer = PyObject_CallNoArgs(poll);
    Py_XDECREF(answer);
    return !answer;
}

// Run a kernel without the GIL; take it back now and then to let Python look for signals.
template <class Kernel>
void run(int n_threads, Kernel&& kernel) {
    if (n_threads < 1) refuse("n_threads must be at least 1.");
    const axil::Crew crew{static_cast<std::size_t>(n_threads), interrupted};
    try {
        nb::gil_scoped_release no_gil;
        kernel(crew);
    } catch (const axil::Interrupted&) {
        throw nb::python_error();  // what `interrupted` left behind
    }
}

template <class Leaf>
void sweep(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Array<double, 2>& state,
           const Numbers& apply, const Matrix& table, const Maybe& apply_weights, const Numbers& gather,
           const Array<double, 2>& sums, const Maybe& gather_weights, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t columns = state.shape(1);
    require_shape(state, all.rows, columns, "state");
    require_shape(table, all.total(), columns, "table");
    require_shape(sums, all.total(), columns, "sums");
    const auto applied = checked(apply, all.trees, "apply"), gathered = checked(gather, all.trees, "gather");
    const double* a = pointer(apply_weights, all.rows, "apply_weights");
    const double* g = pointer(gather_weights, all.rows, "gather_weights");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::sweep(all, state.data(), columns, applied, table.data(), a, gathered, sums.data(), g, crew);
    });
}

// Two dimensions, columns next to each other; rows may lie further apart.
template <class T>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <class T>
std::size_t stride_of(const Rows<T>& array, const char* name) {
    if (array.size() == 0) return 0;
    if (array.shape(1) > 1 && array.stride(1) != 1)
        refuse(std::string(name) + " must have its columns next to each other.");
    if (array.shape(0) > 1 && array.stride(0) < static_cast<std::int64_t>(array.shape(1)))
        refuse(std::string(name) + " has rows that overlap.");
    return static_cast<std::size_t>(array.shape(0) > 1 ? array.stride(0) : 0);
}

template <class Leaf>
void read_out(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Rows<const double>& table,
              const Vector& constant, const Maybe& weights, std::int64_t first, const Rows<double>& out,
              int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t rows = out.shape(0), columns = out.shape(1);
    if (table.shape(0) != all.total() || table.shape(1) != columns)
        refuse("table has shape (" + to_string(table.shape(0)) + ", " + to_string(table.shape(1)) + ") where (" +
               to_string(all.total()) + ", " + to_string(columns) + ") is expected.");
    require_length(constant.shape(0), columns, "constant");
    require_rows(first, rows, all.rows);
    const std::size_t table_stride = stride_of(table, "table"), out_stride = stride_of(out, "out");
    const double* w = pointer(weights, all.rows, "weights");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::read_out(all, table.data(), table_stride, columns, constant.data(), w, static_cast<std::size_t>(first),
                       rows, out.data(), out_stride, crew);
    });
}

void product(const Rows<const double>& a, const Matrix& b, const Rows<double>& out, int n_threads) {
    const std::size_t rows = out.shape(0), columns = out.shape(1), inner = b.shape(0);
    if (a.shape(0) != rows || a.shape(1) != inner)
        refuse("a has shape (" + to_string(a.shape(0)) + ", " + to_string(a.shape(1)) + ") where (" + to_string(rows) +
               ", " + to_string(inner) + ") is expected.");
    require_shape(b, inner, columns, "b");
    const std::size_t a_stride = stride_of(a, "a"), out_stride = stride_of(out, "out");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::product(a.data(), a_stride, rows, inner, b.data(), columns, out.data(), out_stride, crew);
    });
}

void column_sums(const Rows<const double>& block, const Matrix& values, std::int64_t measure,
                 const Array<double, 2>& out, int n_threads) {
    const std::size_t rows = block.shape(0), columns = block.shape(1), n_values = values.shape(1);
    require_shape(values, rows, n_values, "values");
    require_shape(out, columns, n_values, "out");
    if (!within(measure, 3)) refuse("measure is " + to_string(measure) + "; expected 0, 1 or 2.");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::column_sums(block.data(), block.stride(0), block.stride(1), rows, columns, values.data(), n_values,
                          static_cast<axil::Measure>(measure), out.data(), crew);
    });
}

template <class Leaf>
void moments(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Rows<const double>& table,
             const Vector& constant, const Maybe& weights, const Matrix& values, const Array<double, 3>& out,
             int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t columns = table.shape(1), n_values = values.shape(1);
    if (table.shape(0) != all.total())
        refuse("table has " + to_string(table.shape(0)) + " rows where " + to_string(all.total()) + " are expected.");
    require_length(constant.shape(0), columns, "constant");
    require_shape(values, all.rows, n_values, "values");
    if (out.shape(0) != 2 || out.shape(1) != columns || out.shape(2) != n_values)
        refuse("out must have the shape (2, " + to_string(columns) + ", " + to_string(n_values) + ").");
    const std::size_t table_stride = stride_of(table, "table");
    const double* w = pointer(weights, all.rows, "weights");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::moments(all, table.data(), table_stride, columns, constant.data(), w, values.data(), n_values, out.data(),
                      crew);
    });
}

template <class Leaf>
void cooccurrence(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Maybe& weights,
                  const Array<double, 2>& out, int n_threads) {
    const auto all = checked(leaves, starts);
    require_shape(out, all.total(), all.total(), "out");
    const double* w = pointer(weights, all.rows, "weights");
    run(n_threads, [&](const axil::Crew& crew) { axil::cooccurrence(all, w, out.data(), crew); });
}

void top(const Matrix& block, std::int64_t first, const Maybe& scale, const Array<double, 2>& values,
         const Array<std::int64_t, 2>& rows, int n_threads) {
    const std::size_t columns = block.shape(1), k = values.shape(1);
    require_shape(values, columns, k, "values");
    require_shape(rows, columns, k, "rows");
    if (!fits(first, block.shape(0), std::numeric_limits<std::int64_t>::max()))
        refuse("first is " + to_string(first) + ": the block's rows have no numbers.");
    if (scale) {
        const std::size_t n = scale->shape(0);
        if (!fits(first, block.shape(0), n)) refuse("scale ends before the rows of the block.");
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (rows.data()[i] >= 0 && !within(rows.data()[i], n))
                refuse("rows has row " + to_string(rows.data()[i]) + ", beyond the end of scale.");
    }
    run(n_threads, [&](const axil::Crew& crew) {
        axil::top(block.data(), block.shape(0), columns, static_cast<std::size_t>(first),
                  scale ? scale->data() : nullptr, k, values.data(), rows.data(), crew);
    });
}

template <class Leaf>
void top_rows(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Matrix& table, const Vector& constant,
              const Maybe& weights, const Maybe& scale, const Array<double, 2>& values,
              const Array<std::int64_t, 2>& rows, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t columns = constant.shape(0), k = values.shape(1);
    require_shape(table, all.total(), columns, "table");
    require_shape(values, columns, k, "values");
    require_shape(rows, columns, k, "rows");
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows.data()[i] >= 0 && !within(rows.data()[i], all.rows))
            refuse("rows has row " + to_string(rows.data()[i]) + ", but there are only " + to_string(all.rows) + ".");
    const double* w = pointer(weights, all.rows, "weights");
    const double* s = pointer(scale, all.rows, "scale");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::top_rows(all, table.data(), columns, constant.data(), w, s, k, values.data(), rows.data(), crew);
    });
}

// Weights that bounds can be made of.
const double* tree_weights(const Maybe& weights, std::size_t trees) {
    const double* found = pointer(weights, trees, "weights");
    for (std::size_t t = 0; found && t < trees; ++t)
        if (!(found[t] >= 0) || !std::isfinite(found[t])) refuse("weights must be finite and not below 0.");
    return found;
}

template <class Leaf>
void matches(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Array<const Leaf, 2>& queries,
             const Maybe& weights, std::int64_t first, const Array<double, 2>& out, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t n = queries.shape(0), rows = out.shape(0);
    require_shape(queries, n, all.trees, "queries");
    require_shape(out, rows, n, "out");
    require_rows(first, rows, all.rows);
    const double* w = tree_weights(weights, all.trees);
    run(n_threads, [&](const axil::Crew& crew) {
        axil::matches(all, queries.data(), n, w, static_cast<std::size_t>(first), rows, out.data(), crew);
    });
}

template <class Leaf>
void top_matches(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Array<const Leaf, 2>& queries,
                 const Maybe& weights, const Array<double, 2>& values, const Array<std::int64_t, 2>& rows,
                 int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t n = queries.shape(0), k = values.shape(1);
    require_shape(queries, n, all.trees, "queries");
    require_shape(values, n, k, "values");
    require_shape(rows, n, k, "rows");
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows.data()[i] >= 0) refuse("rows must be free, all -1.");
    const double* w = tree_weights(weights, all.trees);
    run(n_threads, [&](const axil::Crew& crew) {
        axil::top_matches(all, queries.data(), n, w, k, values.data(), rows.data(), crew);
    });
}

// Places that are no numbers have no order, which sorting would not survive.
template <class Leaf>
std::unique_ptr<axil::Blocks> blocks(const Array<const Leaf, 2>& leaves, const Numbers& starts,
                                     const Array<const float, 2>& places, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t dimensions = places.shape(1);
    require_shape(places, all.rows, dimensions, "places");
    if (dimensions == 0) refuse("places must have a dimension at least.");
    if (all.rows == 0 || all.rows > std::numeric_limits<std::uint32_t>::max())
        refuse("leaves has " + to_string(all.rows) + " rows; blocks are made of 1 to 2^32 - 1.");
    for (std::size_t i = 0; i < places.size(); ++i)
        if (!std::isfinite(places.data()[i])) refuse("places must be finite.");
    std::unique_ptr<axil::Blocks> made;
    run(n_threads, [&](const axil::Crew& crew) { made = axil::blocks_of(all, places.data(), dimensions, crew); });
    return made;
}

void top_blocks(const axil::Blocks& blocks, const Matrix& table, const Vector& constant, const Maybe& weights,
                const Maybe& scale, std::uint64_t most, const Array<double, 2>& values,
                const Array<std::int64_t, 2>& rows, const Array<std::uint8_t, 1>& done, int n_threads) {
    const std::size_t columns = constant.shape(0), k = values.shape(1);
    require_shape(table, blocks.total(), columns, "table");
    require_shape(values, columns, k, "values");
    require_shape(rows, columns, k, "rows");
    require_length(done.shape(0), columns, "done");
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows.data()[i] >= 0 && !within(rows.data()[i], blocks.rows()))
            refuse("rows has row " + to_string(rows.data()[i]) + ", but there are only " + to_string(blocks.rows()) +
                   ".");
    const double* w = pointer(weights, blocks.rows(), "weights");
    const double* s = pointer(scale, blocks.rows(), "scale");
    run(n_threads, [&](const axil::Crew& crew) {
        blocks.top(table.data(), columns, constant.data(), w, s, k, most, values.data(), rows.data(), done.data(),
                   crew);
    });
}

template <class Leaf>
void replay(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Vector& values, const Vector& targets,
            const Maybe& weights, bool single, bool single_score, const Array<double, 1>& score,
            const Array<double, 1>& sums, const Array<double, 1>& counts, int n_threads) {
    const auto all = checked(leaves, starts);
    require_length(counts.shape(0), all.total(), "counts");
    require_length(values.shape(0), all.total(), "values");
    require_length(targets.shape(0), all.rows, "targets");
    require_length(score.shape(0), all.rows, "score");
    require_length(sums.shape(0), all.total(), "sums");
    const double* w = pointer(weights, all.rows, "weights");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::replay(all, values.data(), targets.data(), w, single, single_score, score.data(), sums.data(),
                     counts.data(), crew);
    });
}

// Every node has its own parent, before it, and leaves have numbers; child(i, side) is that of node i of all.
template <class Child>
void require_trees(const Numbers& starts, std::size_t n_nodes, std::size_t most_leaves, const Child& child_of) {
    for (std::size_t t = 0; t + 1 < starts.shape(0); ++t) {
        if (starts.data()[t] < 0 || starts.data()[t] > starts.data()[t + 1] ||
            !within(starts.data()[t + 1], n_nodes + 1))
            refuse("starts must increase up to the number of nodes.");
        const auto begin = static_cast<std::size_t>(starts.data()[t]);
        const auto n = static_cast<std::size_t>(starts.data()[t + 1]) - begin;
        std::vector<bool> has_parent(n);
        for (std::size_t i = 0; i < n; ++i)
            for (const std::size_t side : {0, 1}) {
                const std::int32_t child = child_of(begin + i, side);
                if (child < 0 ? !within(~child, most_leaves)
                              : !within(child, n) || static_cast<std::size_t>(child) <= i)
                    refuse("tree " + to_string(t) + ": node " + to_string(i) + " has a child out of order.");
                if (child < 0) continue;
                if (has_parent[static_cast<std::size_t>(child)])  // followed from its root, such a tree may never end
                    refuse("tree " + to_string(t) + ": node " + to_string(child) + " has two parents.");
                has_parent[static_cast<std::size_t>(child)] = true;
            }
    }
}

// How many ranks the nodes that look at this view may have: one per threshold, and of categories the one between left and right.
std::uint64_t ranks_of(const axil::Routes& routes, const axil::View& view) {
    if (view.kind == axil::View::categories) return 1;
    return static_cast<std::uint64_t>(routes.columns[2 * view.column + 3] - routes.columns[2 * view.column + 1]);
}

axil::Routes checked(const Array<const std::int64_t, 2>& columns, const Vector& thresholds,
                     const Array<const std::int64_t, 2>& views, const Array<const std::uint8_t, 1>& outcomes,
                     const Array<const std::int32_t, 2>& nodes, const Numbers& starts, bool single, bool strict,
                     double zero, std::size_t features, std::size_t most_leaves) {
    static_assert(sizeof(axil::View) == 4 * sizeof(std::int64_t) && sizeof(axil::Node) == 4 * sizeof(std::int32_t));
    const std::size_t trees = starts.shape(0) - 1;
    if (columns.shape(0) < 1 || columns.shape(1) != 2 || views.shape(1) != 4 || nodes.shape(1) != 4)
        refuse("columns must be (n + 1, 2), views and nodes (n, 4).");
    const axil::Routes routes{columns.data(),
                              columns.shape(0) - 1,
                              thresholds.data(),
                              reinterpret_cast<const axil::View*>(views.data()),
                              views.shape(0),
                              outcomes.data(),
                              reinterpret_cast<const axil::Node*>(nodes.data()),
                              starts.data(),
                              trees,
                              single,
                              strict,
                              zero};
    for (std::size_t c = 0; c < routes.n_columns; ++c) {
        const auto first = routes.columns[2 * c + 1], last = routes.columns[2 * c + 3];
        if (!within(routes.columns[2 * c], features) || first < 0 || first > last ||
            !within(last, thresholds.shape(0) + 1) || last - first > 65535)
            refuse("column " + to_string(c) + " names a feature or thresholds that do not exist, or too many.");
    }
    for (std::size_t v = 0; v < routes.n_views; ++v) {
        const axil::View& view = routes.views[v];
        const bool has_outcomes = view.kind != axil::View::categories ||
                                  (view.count >= 0 && outcomes.shape(0) >= 2 &&
                                   fits(view.first, static_cast<std::uint64_t>(view.count), outcomes.shape(0) - 2));
        if (!within(view.column, routes.n_columns) || !within(view.kind, axil::View::categories + 1) || !has_outcomes ||
            (v && routes.views[v - 1].column > view.column))
            refuse("view " + to_string(v) + " does not fit its column.");
    }
    require_trees(starts, nodes.shape(0), most_leaves,
                  [&](std::size_t i, std::size_t side) { return side ? routes.nodes[i].right : routes.nodes[i].left; });
    for (std::size_t t = 0; t < trees; ++t) {
        const auto n = static_cast<std::size_t>(starts.data()[t + 1] - starts.data()[t]);
        for (std::size_t i = 0; i < n; ++i) {
            const axil::Node& node = routes.nodes[static_cast<std::size_t>(starts.data()[t]) + i];
            if (!within(node.view, routes.n_views))
                refuse("tree " + to_string(t) + ": node " + to_string(i) + " has no such view.");
            // A rank beyond them would lose its upper bits in a code of one byte.
            const auto ranks = ranks_of(routes, routes.views[node.view]);
            if (!within(node.rank, ranks))
                refuse("tree " + to_string(t) + ": node " + to_string(i) + " has rank " + to_string(node.rank) +
                       " where there are " + to_string(ranks) + ".");
        }
    }
    return routes;
}

template <class Value, class Leaf>
bool assign(const nb::ndarray<const Value, nb::ndim<2>, nb::device::cpu>& values,
            const Array<const std::int64_t, 2>& columns, const Vector& thresholds,
            const Array<const std::int64_t, 2>& views, const Array<const std::uint8_t, 1>& outcomes,
            const Array<const std::int32_t, 2>& nodes, const Numbers& starts, bool single, bool strict, double zero,
            const nb::ndarray<Leaf, nb::ndim<2>, nb::device::cpu>& out, int n_threads) {
    const std::size_t rows = values.shape(0), most_leaves = std::size_t(std::numeric_limits<Leaf>::max()) + 1;
    if (starts.shape(0) < 1) refuse("starts must not be empty.");
    const auto routes = checked(columns, thresholds, views, outcomes, nodes, starts, single, strict, zero,
                                values.shape(1), most_leaves);
    if (out.shape(0) != routes.trees || out.shape(1) != rows || (rows > 1 && out.stride(1) != 1))
        refuse("out must be (trees, rows), with the rows of a tree next to each other.");
    bool infinite = false;
    run(n_threads, [&](const axil::Crew& crew) {
        infinite = axil::assign(routes, axil::Table<Value>{values.data(), rows, values.stride(0), values.stride(1)},
                                axil::Output<Leaf>{out.data(), out.stride(0)}, crew);
    });
    return infinite;
}

axil::Table<double> table_of(const Rows<const double>& rows) {
    return {rows.data(), rows.shape(0), rows.stride(0), rows.stride(1)};
}

void feature_differences(const Rows<const double>& queries, const Rows<const double>& rows,
                         const Array<const std::int64_t, 2>& pairs,
                         const Array<const std::int64_t, 2>& columns, const Vector& thresholds,
                         const Array<const std::int64_t, 2>& views, const Array<const std::uint8_t, 1>& outcomes,
                         const Array<const std::int32_t, 2>& nodes, const Numbers& starts, bool single, bool strict,
                         double zero, const Array<const std::int32_t, 1>& groups, const Matrix& leaf_values,
                         const Array<double, 3>& out, int n_threads) {
    if (starts.shape(0) < 1) refuse("starts must not be empty.");
    require_length(rows.shape(1), queries.shape(1), "a row");
    require_length(groups.shape(0), queries.shape(1), "groups");
    const auto routes = checked(columns, thresholds, views, outcomes, nodes, starts, single, strict, zero,
                                queries.shape(1), std::size_t(std::numeric_limits<std::uint16_t>::max()) + 1);
    for (std::size_t t = 0; t < routes.trees; ++t)
        for (auto i = routes.starts[t]; i < routes.starts[t + 1]; ++i)
            for (const std::int32_t child : {routes.nodes[i].left, routes.nodes[i].right})
                if (child < 0 && ~child > routes.starts[t + 1] - routes.starts[t])
                    refuse("tree " + to_string(t) + " has a leaf beyond its nodes and one.");
    const auto n_nodes = static_cast<std::size_t>(routes.starts[routes.trees]);
    require_shape(leaf_values, n_nodes + routes.trees, out.shape(2), "leaf_values");
    if (pairs.shape(1) != 2 || out.shape(0) != pairs.shape(0)) refuse("pairs must be (n, 2), out (n, groups, outputs).");
    for (std::size_t i = 0; i < pairs.shape(0); ++i)
        if (!within(pairs.data()[2 * i], queries.shape(0)) || !within(pairs.data()[2 * i + 1], rows.shape(0)))
            refuse("pair " + to_string(i) + " names a row that does not exist.");
    for (std::size_t c = 0; c < groups.shape(0); ++c)
        if (!within(groups.data()[c], out.shape(1)))
            refuse("feature " + to_string(c) + " is in a group that does not exist.");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::feature_differences(routes, table_of(queries), table_of(rows), pairs.data(), pairs.shape(0),
                                  groups.data(), out.shape(1), leaf_values.data(), out.shape(2), out.data(), crew);
    });
}

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::device::cpu>;

void add_tree(axil::Ways& ways, const Column<std::int64_t>& left, const Column<std::int64_t>& right,
              const Column<std::int64_t>& features, const Column<double>& thresholds,
              const Column<std::uint8_t>& missing_left) {
    const std::size_t nodes = left.shape(0);
    require_length(right.shape(0), nodes, "right");
    require_length(features.shape(0), nodes, "features");
    require_length(thresholds.shape(0), nodes, "thresholds");
    require_length(missing_left.shape(0), nodes, "missing_left");
    if (!ways.add({nodes,
                   {left.data(), left.stride(0)},
                   {right.data(), right.stride(0)},
                   {features.data(), features.stride(0)},
                   {thresholds.data(), thresholds.stride(0)},
                   {missing_left.data(), missing_left.stride(0)}}))
        refuse("tree " + to_string(ways.trees.size()) +
               ": its nodes are no tree whose children come after their parents, or one has no feature.");
}

template <class Leaf>
void descend(const axil::Ways& ways, const nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>& values,
             const nb::ndarray<Leaf, nb::ndim<2>, nb::device::cpu>& out, int n_threads) {
    const std::size_t rows = values.shape(0);
    if (ways.features > values.shape(1)) refuse("a node names a feature that does not exist.");
    if (ways.most_leaves > std::size_t(std::numeric_limits<Leaf>::max()) + 1)
        refuse("out must be wide enough for the numbers of all leaves.");
    if (out.shape(0) != ways.trees.size() || out.shape(1) != rows || (rows > 1 && out.stride(1) != 1))
        refuse("out must be (trees, rows), with the rows of a tree next to each other.");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::descend(ways, axil::Table<float>{values.data(), rows, values.stride(0), values.stride(1)},
                      values.shape(1), axil::Output<Leaf>{out.data(), out.stride(0)}, crew);
    });
}

template <class Leaf>
void leaf_rows(const Array<const Leaf, 2>& cells, const Numbers& starts, const Matrix& draws, const Maybe& weights,
               const Vector& factors, const Array<std::int64_t, 1>& ends, const Array<double, 1>& data,
               const Array<std::int32_t, 1>& rows, int n_threads) {
    const auto all = checked(cells, starts);
    require_length(factors.shape(0), all.total(), "factors");
    require_length(ends.shape(0), all.total() + 1, "ends");
    require_length(rows.shape(0), data.shape(0), "rows");
    const bool by_leaf = draws.shape(1) != 1;
    if (draws.shape(0) < 1 || (by_leaf && draws.shape(1) != all.total()))
        refuse("draws must be (levels, 1) or (levels, leaves).");
    const bool counts = data.shape(0) == 0;
    for (std::size_t i = 0; !counts && i <= all.total(); ++i)
        if (!within(ends.data()[i], data.shape(0) + 1) || (i && ends.data()[i] < ends.data()[i - 1]))
            refuse("ends must increase up to the number of entries.");
    const axil::LeafRows job{draws.shape(0),
                             draws.data(),
                             by_leaf,
                             pointer(weights, all.rows, "weights"),
                             factors.data(),
                             ends.data(),
                             counts ? nullptr : data.data(),
                             counts ? nullptr : rows.data()};
    bool room = false;
    run(n_threads, [&](const axil::Crew& crew) { room = axil::leaf_rows(all, job, crew); });
    if (!room) refuse("ends leave too little or too much room for the entries of a leaf.");
}

// Numbers that begin with 0 at the earliest, never decrease, and end with `size` at the latest.
void require_ends(const std::int64_t* ends, std::size_t count, std::size_t size, const char* name) {
    for (std::size_t i = 0; i < count; ++i)
        if (!within(ends[i], size + 1) || (i && ends[i] < ends[i - 1]))
            refuse(std::string(name) + " must increase from 0 up to " + to_string(size) + ".");
}

void ordered_read_out(const Vector& values, const Array<const std::uint16_t, 1>& rows,
                      const Array<const std::int64_t, 2>& ends, std::int64_t block_rows, const Numbers& starts,
                      const Numbers& cells, const Maybe& coefficients, const Array<double, 2>& out, int n_threads) {
    const std::size_t n_blocks = ends.shape(0), n_rows = out.shape(1);
    require_length(rows.shape(0), values.shape(0), "rows");
    require_length(starts.shape(0), out.shape(0) + 1, "starts");
    if (ends.shape(1) < 1) refuse("ends must have a column for the end of the last cell.");
    if (block_rows < 1 || block_rows > 1 << 16) refuse("block_rows must be from 1 to 65536.");
    const auto size = static_cast<std::size_t>(block_rows);
    if (n_blocks != n_rows / size + (n_rows % size ? 1 : 0))
        refuse("out has " + to_string(n_rows) + " rows, which are not " + to_string(n_blocks) + " blocks.");
    const std::size_t n_cells = ends.shape(1) - 1;
    for (std::size_t block = 0; block < n_blocks; ++block)
        require_ends(ends.data() + block * ends.shape(1), ends.shape(1), values.shape(0), "ends");
    require_ends(starts.data(), starts.shape(0), cells.shape(0), "starts");
    for (std::size_t i = 0; i < cells.shape(0); ++i)
        if (!within(cells.data()[i], n_cells))
            refuse("cells has cell " + to_string(cells.data()[i]) + ", but there are " + to_string(n_cells) + ".");
    const axil::LeafOrder order{values.data(), rows.data(), ends.data(), n_blocks, n_cells, size};
    const axil::CellList queries{starts.data(), cells.data(), pointer(coefficients, cells.shape(0), "coefficients"),
                                 out.shape(0)};
    run(n_threads, [&](const axil::Crew& crew) { axil::ordered_read_out(order, queries, out.data(), n_rows, crew); });
}

template <class Leaf>
void scaled_read_out(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Matrix& table,
                     const Matrix& factors, std::int64_t first, const Array<double, 2>& out, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t rows = out.shape(0), columns = out.shape(1);
    require_shape(table, all.total(), columns, "table");
    require_shape(factors, all.trees, rows, "factors");
    require_rows(first, rows, all.rows);
    run(n_threads, [&](const axil::Crew& crew) {
        axil::scaled_read_out(all, table.data(), columns, factors.data(), static_cast<std::size_t>(first), rows,
                              out.data(), crew);
    });
}

template <class Leaf>
void residual_factors(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Vector& steps,
                      const Vector& levels, const Vector& draws, const Vector& start, std::int64_t first,
                      const Array<double, 2>& out, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t rows = out.shape(1);
    require_shape(out, all.trees, rows, "out");
    require_length(steps.shape(0), all.total(), "steps");
    require_length(levels.shape(0), all.total(), "levels");
    require_length(draws.shape(0), all.total(), "draws");
    require_length(start.shape(0), rows, "start");
    require_rows(first, rows, all.rows);
    run(n_threads, [&](const axil::Crew& crew) {
        axil::residual_factors(all, steps.data(), levels.data(), draws.data(), start.data(),
                               static_cast<std::size_t>(first), rows, out.data(), crew);
    });
}

// The length that the tables of these trees have together.
template <class Leaf, class One>
std::size_t tables_of(const axil::Leaves<Leaf>& all, const One* list, std::size_t n, std::size_t outputs,
                      const char* name) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (!within(list[i].tree, all.trees) || !within(list[i].output, outputs))
            refuse(std::string(name) + " has a tree or an output that does not exist.");
        total += all.count(static_cast<std::size_t>(list[i].tree));
    }
    return total;
}

// Where the lists of each round begin: (rounds + 1, 2), from 0 up to their lengths.
void require_rounds(const Array<const std::int64_t, 2>& rounds, std::size_t first, std::size_t second) {
    if (rounds.shape(0) < 1 || rounds.shape(1) != 2) refuse("rounds must be (n + 1, 2).");
    for (std::size_t kind = 0; kind < 2; ++kind) {
        const std::size_t n = kind ? second : first, last = rounds.shape(0) - 1;
        for (std::size_t i = 0; i <= last; ++i)
            if (!within(rounds(i, kind), n + 1) || (i > 0 && rounds(i - 1, kind) > rounds(i, kind)))
                refuse("rounds must increase up to the number of terms and of moves.");
        if (rounds(0, kind) != 0 || static_cast<std::size_t>(rounds(last, kind)) != n)
            refuse("rounds must begin with 0 and end with the number of terms and of moves.");
    }
}

// The rounds of a fit, once they fit the trees and the states of their rows.
template <class Leaf>
axil::Program program_of(const axil::Leaves<Leaf>& all, const Array<const std::int64_t, 2>& rounds,
                         const Array<const std::int64_t, 2>& terms, const Vector& scales,
                         const Array<const std::int64_t, 2>& moves, const Vector& steps,
                         const std::optional<Array<const std::uint8_t, 2>>& draws, int link, bool product,
                         const Matrix& intercepts, const Matrix& slopes, const Array<double, 2>& state,
                         std::int64_t first) {
    const std::size_t outputs = state.shape(0), rows = state.shape(1);
    if (terms.shape(1) != 3 || moves.shape(1) != 2) refuse("terms must be (n, 3) and moves (n, 2).");
    const auto* term = reinterpret_cast<const axil::Term*>(terms.data());
    const auto* move = reinterpret_cast<const axil::Move*>(moves.data());
    require_length(scales.shape(0), tables_of(all, term, terms.shape(0), outputs, "terms"), "scales");
    require_length(steps.shape(0), tables_of(all, move, moves.shape(0), outputs, "moves"), "steps");
    require_rounds(rounds, terms.shape(0), moves.shape(0));
    if (draws) require_shape(*draws, all.trees, all.rows, "draws");
    if (link < 0 || link > axil::Program::share) refuse("link must be 0, 1 or 2.");
    require_shape(intercepts, outputs, rows, "intercepts");
    require_shape(slopes, outputs, rows, "slopes");
    require_rows(first, rows, all.rows);
    return {rounds.data(),
            rounds.shape(0) - 1,
            term,
            terms.shape(0),
            scales.data(),
            move,
            moves.shape(0),
            steps.data(),
            draws ? draws->data() : nullptr,
            outputs,
            static_cast<axil::Program::Link>(link),
            product};
}

template <class Leaf>
void gradient_factors(const Array<const Leaf, 2>& leaves, const Numbers& starts,
                      const Array<const std::int64_t, 2>& rounds, const Array<const std::int64_t, 2>& terms,
                      const Vector& scales, const Array<const std::int64_t, 2>& moves, const Vector& steps,
                      const std::optional<Array<const std::uint8_t, 2>>& draws, int link, bool product,
                      const Matrix& intercepts, const Matrix& slopes, const Array<double, 2>& state, std::int64_t first,
                      const Array<double, 2>& out, int n_threads) {
    const auto all = checked(leaves, starts);
    const auto program = program_of(all, rounds, terms, scales, moves, steps, draws, link, product, intercepts, slopes,
                                    state, first);
    const std::size_t rows = state.shape(1), places = out.shape(0);
    for (std::size_t i = 0; i < program.n_terms; ++i)
        if (!within(program.terms[i].place, places)) refuse("terms has a place that out does not have.");
    require_shape(out, places, rows, "out");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::gradient_factors(all, program, intercepts.data(), slopes.data(), state.data(),
                               static_cast<std::size_t>(first), rows, places, out.data(), crew);
    });
}

template <class Leaf>
void gradient_sums(const Array<const Leaf, 2>& leaves, const Numbers& starts,
                   const Array<const std::int64_t, 2>& rounds, const Array<const std::int64_t, 2>& terms,
                   const Vector& scales, const Array<const std::int64_t, 2>& moves, const Vector& steps,
                   const std::optional<Array<const std::uint8_t, 2>>& draws, int link, bool product,
                   const Matrix& intercepts, const Matrix& slopes, const Array<double, 2>& state, std::int64_t first,
                   const Array<double, 2>& sums, int n_threads) {
    const auto all = checked(leaves, starts);
    const auto program = program_of(all, rounds, terms, scales, moves, steps, draws, link, product, intercepts, slopes,
                                    state, first);
    require_shape(sums, scales.shape(0), 2, "sums");
    run(n_threads, [&](const axil::Crew& crew) {
        axil::gradient_sums(all, program, intercepts.data(), slopes.data(), state.data(),
                            static_cast<std::size_t>(first), state.shape(1), sums.data(), crew);
    });
}

template <class T>
void require_within(const Array<const T, 1>& numbers, std::size_t size, const char* name) {
    for (std::size_t i = 0; i < numbers.shape(0); ++i)
        if (!within(numbers.data()[i], size))
            refuse(std::string(name) + " has " + to_string(numbers.data()[i]) +
                   ", where numbers from 0 up to, but not, " + to_string(size) + " are expected.");
}

template <class Leaf>
void factor_sums(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Numbers& trees, const Matrix& factors,
                 const Numbers& codes, std::int64_t first, const Array<double, 2>& sums, int n_threads) {
    const auto all = checked(leaves, starts);
    const auto list = checked(trees, all.trees, "trees");
    std::size_t cells = 0;
    for (std::size_t i = 0; i < list.size; ++i) cells += all.count(list[i]);
    require_shape(factors, list.size, codes.shape(0), "factors");
    require_shape(sums, cells, sums.shape(1), "sums");
    require_within(codes, sums.shape(1), "codes");
    require_rows(first, codes.shape(0), all.rows);
    run(n_threads, [&](const axil::Crew& crew) {
        axil::factor_sums(all, list, factors.data(), codes.data(), sums.shape(1), static_cast<std::size_t>(first),
                          codes.shape(0), sums.data(), crew);
    });
}

template <class Leaf>
void pair_sums(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Matrix& table,
               const std::optional<Matrix>& factors, std::int64_t first, const Array<double, 1>& out, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t rows = out.shape(0);
    require_shape(table, all.total(), all.total(), "table");
    if (factors) require_shape(*factors, all.trees, rows, "factors");
    require_rows(first, rows, all.rows);
    run(n_threads, [&](const axil::Crew& crew) {
        axil::pair_sums(all, table.data(), factors ? factors->data() : nullptr, static_cast<std::size_t>(first), rows,
                        out.data(), crew);
    });
}

template <class T>
void require_shape(const Array<T, 3>& array, std::size_t outputs, std::size_t trees, std::size_t rows,
                   const char* name) {
    const auto shape = [](std::size_t a, std::size_t b, std::size_t c) {
        return "(" + to_string(a) + ", " + to_string(b) + ", " + to_string(c) + ")";
    };
    if (array.shape(0) != outputs || array.shape(1) != trees || array.shape(2) != rows)
        refuse(std::string(name) + " has shape " + shape(array.shape(0), array.shape(1), array.shape(2)) + " where " +
               shape(outputs, trees, rows) + " is expected.");
}

template <class Leaf>
void refit_rounds(const Array<const Leaf, 2>& leaves, const Numbers& starts, const Array<const std::int64_t, 2>& rounds,
                  const Array<const std::int64_t, 2>& moves, const Matrix& steps,
                  const Array<const std::int64_t, 2>& terms, int link, double curvature, const Matrix& intercepts,
                  const Matrix& slopes, const Matrix& weights, const std::optional<Array<const std::uint8_t, 2>>& draws,
                  const Array<double, 3>& state, const Array<double, 3>& sums, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t copies = state.shape(0), outputs = state.shape(1);
    if (moves.shape(1) != 2 || terms.shape(1) != 2) refuse("moves and terms must be (n, 2).");
    require_rounds(rounds, moves.shape(0), terms.shape(0));
    const auto* move = reinterpret_cast<const axil::Move*>(moves.data());
    const auto* term = reinterpret_cast<const axil::Move*>(terms.data());
    require_shape(steps, copies, tables_of(all, move, moves.shape(0), outputs, "moves"), "steps");
    require_shape(sums, copies, tables_of(all, term, terms.shape(0), outputs, "terms"), 2, "sums");
    require_shape(state, copies, outputs, all.rows, "state");
    require_shape(intercepts, outputs, all.rows, "intercepts");
    require_shape(slopes, outputs, all.rows, "slopes");
    require_shape(weights, copies, all.rows, "weights");
    if (draws) require_shape(*draws, all.trees, all.rows, "draws");
    if (link != axil::Program::inverse && link != axil::Program::share) refuse("link must be 1 or 2.");
    const axil::Refit refit{rounds.data(),
                            rounds.shape(0) - 1,
                            move,
                            moves.shape(0),
                            steps.data(),
                            term,
                            terms.shape(0),
                            static_cast<axil::Program::Link>(link),
                            curvature,
                            copies,
                            outputs,
                            intercepts.data(),
                            slopes.data(),
                            weights.data(),
                            draws ? draws->data() : nullptr,
                            state.data(),
                            sums.data()};
    run(n_threads, [&](const axil::Crew& crew) { axil::refit_rounds(all, refit, crew); });
}

template <class Leaf>
void deletions(const Array<const Leaf, 2>& leaves, const Numbers& starts, std::int64_t levels,
               const Rows<const double>& table, const Matrix& rules, const std::optional<Vector>& shifts,
               const Vector& draws, const std::optional<Vector>& weights, const Matrix& values, const Vector& slopes,
               const Matrix& steps, const Vector& drifts, const Matrix& start, const Matrix& base,
               const Matrix& changed, std::int64_t first, const std::optional<Array<double, 3>>& residuals,
               const std::optional<Array<double, 3>>& added, int n_threads) {
    const auto all = checked(leaves, starts);
    const std::size_t rows = start.shape(1), outputs = start.shape(0), trees = all.trees;
    require_rows(first, rows, all.rows);
    if (levels < 1) refuse("levels must be at least 1.");
    const auto n_levels = static_cast<std::size_t>(levels);
    for (std::size_t t = 0; t < trees; ++t)
        if (all.count(t) % n_levels != 0)
            refuse("tree " + to_string(t) + " has " + to_string(all.count(t)) + " cells, no multiple of " +
                   to_string(levels) + " levels.");
    const std::size_t total = all.total() / n_levels;
    if (table.shape(0) != total || table.shape(1) != total)
        refuse("table has shape (" + to_string(table.shape(0)) + ", " + to_string(table.shape(1)) + ") where (" +
               to_string(total) + ", " + to_string(total) + ") is expected.");
    require_shape(rules, total, sizeof(axil::LeafRule) / sizeof(double), "rules");
    if (shifts) require_length(shifts->shape(0), total, "shifts");
    require_length(draws.shape(0), n_levels, "draws");
    if (weights) require_length(weights->shape(0), rows, "weights");
    require_shape(values, total, outputs, "values");
    require_length(slopes.shape(0), total, "slopes");
    require_shape(steps, trees, trees, "steps");
    require_length(drifts.shape(0), trees, "drifts");
    require_shape(base, outputs, rows, "base");
    require_shape(changed, outputs, rows, "changed");
    if (residuals) require_shape(*residuals, outputs, trees + 1, rows, "residuals");
    if (added) require_shape(*added, outputs, trees, rows, "added");
    bool in_turn = true;
    for (std::size_t t = 0; t < trees; ++t)
        for (std::size_t s = 0; s < t; ++s) in_turn = in_turn && steps.data()[t * trees + s] == 0;
    const axil::Deletions<Leaf> job{all,
                                    n_levels,
                                    table.data(),
                                    stride_of(table, "table"),
                                    reinterpret_cast<const axil::LeafRule*>(rules.data()),
                                    shifts ? shifts->data() : nullptr,
                                    draws.data(),
                                    weights ? weights->data() : nullptr,
                                    values.data(),
                                    slopes.data(),
                                    steps.data(),
                                    in_turn,
                                    drifts.data(),
                                    start.data(),
                                    base.data(),
                                    changed.data(),
                                    static_cast<std::size_t>(first),
                                    rows,
                                    outputs,
                                    residuals ? residuals->data() : nullptr,
                                    added ? added->data() : nullptr};
    run(n_threads, [&](const axil::Crew& crew) { axil::deletions(job, crew); });
}

template <class Leaf>
void drawn_sums(const Array<const Leaf, 1>& leaves, const Vector& draws, const Matrix& values,
                const Array<double, 2>& sums, const Array<std::int64_t, 1>& counts) {
    const std::size_t rows = leaves.shape(0);
    require_length(draws.shape(0), rows, "draws");
    require_shape(values, rows, sums.shape(1), "values");
    require_length(counts.shape(0), sums.shape(0), "counts");
    run(1, [&](const axil::Crew&) {
        axil::drawn_sums(leaves.data(), rows, draws.data(), values.data(), sums.shape(1), sums.shape(0), sums.data(),
                         counts.data());
    });
}

template <class Leaf>
void ranges(const Array<const Leaf, 1>& leaves, const Matrix& values, const Array<double, 2>& low,
            const Array<double, 2>& high) {
    const std::size_t rows = leaves.shape(0), columns = values.shape(1);
    require_shape(values, rows, columns, "values");
    require_shape(low, low.shape(0), columns, "low");
    require_shape(high, low.shape(0), columns, "high");
    run(1, [&](const axil::Crew&) {
        axil::ranges(leaves.data(), rows, values.data(), columns, low.shape(0), low.data(), high.data());
    });
}

template <class T>
void require_aligned(const T&) {
    static_assert(std::is_arithmetic_v<T>);
}
template <class... Kind>
void require_aligned(const nb::ndarray<Kind...>& array) {
    using Scalar = typename nb::ndarray<Kind...>::Scalar;
    if (array.size() > 0 && reinterpret_cast<std::uintptr_t>(array.data()) % alignof(Scalar) != 0)
        refuse("an array is not aligned: its numbers of " + to_string(sizeof(Scalar)) +
               " bytes begin at odd addresses; pass a copy.");
}
template <class T>
void require_aligned(const std::optional<T>& array) {
    if (array) require_aligned(*array);
}

void require_aligned(const axil::Blocks&) {}
void require_aligned(const axil::Ways&) {}

// A kernel that looks at its arrays' alignment first: all are bound so.
template <class Result, class... Arguments>
auto aligned(Result (*kernel)(Arguments...)) {
    return [kernel](Arguments... arguments) {
        (require_aligned(arguments), ...);
        return kernel(arguments...);
    };
}

// Never convert an array: a kernel would write to a copy, or a large input be copied unseen.
auto array(const char* name) { return nb::arg(name).noconvert(); }
auto maybe(const char* name) { return nb::arg(name).noconvert().none(); }

template <class Leaf>
void bind(nb::module_& m) {
    m.def("leaf_rows", aligned(leaf_rows<Leaf>), array("cells"), array("starts"), array("draws"), maybe("weights"),
          array("factors"), array("ends"), array("data"), array("rows"), "n_threads"_a);
    m.def("descend", aligned(descend<Leaf>), "ways"_a, array("values"), array("out"), "n_threads"_a);
    m.def("drawn_sums", aligned(drawn_sums<Leaf>), array("leaves"), array("draws"), array("values"), array("sums"),
          array("counts"));
    m.def("ranges", aligned(ranges<Leaf>), array("leaves"), array("values"), array("low"), array("high"));
    m.def("sweep", aligned(sweep<Leaf>), array("leaves"), array("starts"), array("state"), array("apply"),
          array("table"), maybe("apply_weights"), array("gather"), array("sums"), maybe("gather_weights"),
          "n_threads"_a);
    m.def("read_out", aligned(read_out<Leaf>), array("leaves"), array("starts"), array("table"), array("constant"),
          maybe("weights"), "first"_a, array("out"), "n_threads"_a);
    m.def("moments", aligned(moments<Leaf>), array("leaves"), array("starts"), array("table"), array("constant"),
          maybe("weights"), array("values"), array("out"), "n_threads"_a);
    m.def("cooccurrence", aligned(cooccurrence<Leaf>), array("leaves"), array("starts"), maybe("weights"), array("out"),
          "n_threads"_a);
    m.def("top_rows", aligned(top_rows<Leaf>), array("leaves"), array("starts"), array("table"), array("constant"),
          maybe("weights"), maybe("scale"), array("values"), array("rows"), "n_threads"_a);
    m.def("matches", aligned(matches<Leaf>), array("leaves"), array("starts"), array("queries"), maybe("weights"),
          "first"_a, array("out"), "n_threads"_a);
    m.def("top_matches", aligned(top_matches<Leaf>), array("leaves"), array("starts"), array("queries"),
          maybe("weights"), array("values"), array("rows"), "n_threads"_a);
    m.def("blocks", aligned(blocks<Leaf>), array("leaves"), array("starts"), array("places"), "n_threads"_a);
    m.def("replay", aligned(replay<Leaf>), array("leaves"), array("starts"), array("values"), array("targets"),
          maybe("weights"), "single"_a, "single_score"_a, array("score"), array("sums"), array("counts"),
          "n_threads"_a);
    m.def("scaled_read_out", aligned(scaled_read_out<Leaf>), array("leaves"), array("starts"), array("table"),
          array("factors"), "first"_a, array("out"), "n_threads"_a);
    m.def("residual_factors", aligned(residual_factors<Leaf>), array("leaves"), array("starts"), array("steps"),
          array("levels"), array("draws"), array("start"), "first"_a, array("out"), "n_threads"_a);
    m.def("gradient_factors", aligned(gradient_factors<Leaf>), array("leaves"), array("starts"), array("rounds"),
          array("terms"), array("scales"), array("moves"), array("steps"), maybe("draws"), "link"_a, "product"_a,
          array("intercepts"), array("slopes"), array("state"), "first"_a, array("out"), "n_threads"_a);
    m.def("gradient_sums", aligned(gradient_sums<Leaf>), array("leaves"), array("starts"), array("rounds"),
          array("terms"), array("scales"), array("moves"), array("steps"), maybe("draws"), "link"_a, "product"_a,
          array("intercepts"), array("slopes"), array("state"), "first"_a, array("sums"), "n_threads"_a);
    m.def("refit_rounds", aligned(refit_rounds<Leaf>), array("leaves"), array("starts"), array("rounds"),
          array("moves"), array("steps"), array("terms"), "link"_a, "curvature"_a, array("intercepts"), array("slopes"),
          array("weights"), maybe("draws"), array("state"), array("sums"), "n_threads"_a);
    m.def("factor_sums", aligned(factor_sums<Leaf>), array("leaves"), array("starts"), array("trees"), array("factors"),
          array("codes"), "first"_a, array("sums"), "n_threads"_a);
    m.def("pair_sums", aligned(pair_sums<Leaf>), array("leaves"), array("starts"), array("table"), maybe("factors"),
          "first"_a, array("out"), "n_threads"_a);
    m.def("deletions", aligned(deletions<Leaf>), array("leaves"), array("starts"), "levels"_a, array("table"),
          array("rules"), maybe("shifts"), array("draws"), maybe("weights"), array("values"), array("slopes"),
          array("steps"), array("drifts"), array("start"), array("base"), array("changed"), "first"_a,
          maybe("residuals"), maybe("added"), "n_threads"_a);
}

std::size_t number_keys(const Array<const std::uint64_t, 1>& keys, const Array<std::int64_t, 1>& numbers) {
    require_length(numbers.shape(0), keys.shape(0), "numbers");
    std::size_t count = 0;
    run(1, [&](const axil::Crew&) { count = axil::number_keys(keys.data(), keys.shape(0), numbers.data()); });
    return count;
}

template <class Value>
void encodings_before(const Array<const std::uint32_t, 1>& numbers, std::size_t count,
                      const Array<const Value, 1>& values, const Array<const float, 2>& scales,
                      const Array<std::uint8_t, 2>& bins) {
    const std::size_t rows = numbers.shape(0);
    require_length(values.shape(0), rows, "values");
    require_shape(scales, bins.shape(0), 4, "scales");
    require_shape(bins, scales.shape(0), rows, "bins");
    require_within(numbers, count, "numbers");
    run(1, [&](const axil::Crew&) {
        axil::encodings_before(numbers.data(), count, values.data(), rows, scales.data(), scales.shape(0), bins.data());
    });
}

void exchange(const Numbers& partners, const Array<std::int64_t, 1>& order) {
    require_length(partners.shape(0), order.shape(0), "partners");
    require_within(partners, order.shape(0), "partners");
    run(1, [&](const axil::Crew&) { axil::exchange(partners.data(), order.shape(0), order.data()); });
}

void bootstrap(std::uint32_t seed, std::size_t drawn, const Array<std::int64_t, 1>& times) {
    if (times.shape(0) < 1 || times.shape(0) > std::numeric_limits<std::uint32_t>::max())
        refuse("times must have a place for each of 1 to 4294967295 rows.");
    run(1, [&](const axil::Crew&) { axil::bootstrap(seed, times.shape(0), drawn, times.data()); });
}

template <class Value, class Leaf>
void bind_assign(nb::module_& m) {
    m.def("assign", aligned(assign<Value, Leaf>), array("values"), array("columns"), array("thresholds"),
          array("views"), array("outcomes"), array("nodes"), array("starts"), "single"_a, "strict"_a, "zero"_a,
          array("out"), "n_threads"_a);
}

template <class Value>
void bind_encodings(nb::module_& m) {
    m.def("encodings_before", aligned(encodings_before<Value>), array("numbers"), "count"_a, array("values"),
          array("scales"), array("bins"));
}

}  // namespace

NB_MODULE(_core, m) {
    nb::class_<axil::Blocks>(m, "Blocks").def_prop_ro("nbytes", &axil::Blocks::bytes);
    nb::class_<axil::Ways>(m, "Ways")
        .def(nb::init<>())
        .def("__len__", [](const axil::Ways& ways) { return ways.trees.size(); })
        .def("add", aligned(add_tree), array("left"), array("right"), array("features"), array("thresholds"),
             array("missing_left"));
    bind<std::uint8_t>(m);
    bind<std::uint16_t>(m);
    bind<std::uint32_t>(m);
    bind_assign<double, std::uint8_t>(m);
    bind_assign<double, std::uint16_t>(m);
    bind_assign<float, std::uint8_t>(m);
    bind_assign<float, std::uint16_t>(m);
    m.def("on_poll", on_poll, "callable"_a);
    m.def("top", aligned(top), array("block"), "first"_a, maybe("scale"), array("values"), array("rows"),
          "n_threads"_a);
    m.def("top_blocks", aligned(top_blocks), "blocks"_a, array("table"), array("constant"), maybe("weights"),
          maybe("scale"), "most"_a, array("values"), array("rows"), array("done"), "n_threads"_a);
    m.def("product", aligned(product), array("a"), array("b"), array("out"), "n_threads"_a);
    m.def("ordered_read_out", aligned(ordered_read_out), array("values"), array("rows"), array("ends"), "block_rows"_a,
          array("starts"), array("cells"), maybe("coefficients"), array("out"), "n_threads"_a);
    m.def("column_sums", aligned(column_sums), array("block"), array("values"), "measure"_a, array("out"),
          "n_threads"_a);
    m.def("feature_differences", aligned(feature_differences), array("queries"), array("rows"), array("pairs"),
          array("columns"), array("thresholds"), array("views"), array("outcomes"), array("nodes"), array("starts"),
          "single"_a, "strict"_a, "zero"_a, array("groups"), array("leaf_values"), array("out"), "n_threads"_a);
    m.def("number_keys", aligned(number_keys), array("keys"), array("numbers"));
    bind_encodings<std::uint8_t>(m);
    bind_encodings<float>(m);
    m.def("exchange", aligned(exchange), array("partners"), array("order"));
    m.def("bootstrap", aligned(bootstrap), "seed"_a, "drawn"_a, array("times"));
    m.def("instruction_set", axil::instruction_set);
}
