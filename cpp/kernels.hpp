// The kernels: what src/axil/_core.pyi describes, on pointers and sizes. No Python here.
//
// Leaf numbers are trusted to be below their tree's leaf count; all else is checked in bindings.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "parallel.hpp"

namespace axil {

// The leaf of every training row in every tree, tree by tree.
template <class Leaf>
struct Leaves {
    const Leaf* data;            // (trees, rows)
    const std::int64_t* starts;  // (trees + 1,)
    std::size_t trees, rows;

    const Leaf* tree(std::size_t t) const { return data + t * rows; }
    std::size_t start(std::size_t t) const { return static_cast<std::size_t>(starts[t]); }
    std::size_t count(std::size_t t) const { return start(t + 1) - start(t); }
    std::size_t total() const { return start(trees); }
};

// MACRO(LEAF) for every type that leaf numbers may have.
#define AXIL_LEAVES(MACRO) MACRO(std::uint8_t) MACRO(std::uint16_t) MACRO(std::uint32_t)

// The kernel, a template of one argument, for all of them.
#define AXIL_INSTANTIATE(KERNEL)                                    \
    template decltype(KERNEL<std::uint8_t>) KERNEL<std::uint8_t>;   \
    template decltype(KERNEL<std::uint16_t>) KERNEL<std::uint16_t>; \
    template decltype(KERNEL<std::uint32_t>) KERNEL<std::uint32_t>;

struct TreeList {
    const std::int64_t* trees;
    std::size_t size;

    std::size_t operator[](std::size_t i) const { return static_cast<std::size_t>(trees[i]); }
};

// Weights may be null, for ones.
template <class Leaf>
void sweep(const Leaves<Leaf>& leaves, double* state, std::size_t columns, TreeList apply, const double* table,
           const double* apply_weights, TreeList gather, double* sums, const double* gather_weights, const Crew& crew);

// Strides are the distances from one row of the table, or of out, to the next.
template <class Leaf>
void read_out(const Leaves<Leaf>& leaves, const double* table, std::size_t table_stride, std::size_t columns,
              const double* constant, const double* weights, std::size_t first, std::size_t rows, double* out,
              std::size_t out_stride, const Crew& crew);

// Overwrites out, (rows, columns), with a (rows, inner) times b (inner, columns).
void product(const double* a, std::size_t a_stride, std::size_t rows, std::size_t inner, const double* b,
             std::size_t columns, double* out, std::size_t out_stride, const Crew& crew);

enum class Measure { self, size, square };

// Overwrites out, (columns, n_values), with the sums over the rows of measure(block) times values.
void column_sums(const double* block, std::ptrdiff_t row_stride, std::ptrdiff_t column_stride, std::size_t rows,
                 std::size_t columns, const double* values, std::size_t n_values, Measure measure, double* out,
                 const Crew& crew);

// Overwrites out, (2, columns, n_values).
template <class Leaf>
void moments(const Leaves<Leaf>& leaves, const double* table, std::size_t table_stride, std::size_t columns,
             const double* constant, const double* weights, const double* values, std::size_t n_values, double* out,
             const Crew& crew);

template <class Leaf>
void cooccurrence(const Leaves<Leaf>& leaves, const double* weights, double* out, const Crew& crew);

void top(const double* block, std::size_t n_rows, std::size_t columns, std::size_t first, const double* scale,
         std::size_t k, double* values, std::int64_t* rows, const Crew& crew);

template <class Leaf>
void top_rows(const Leaves<Leaf>& leaves, const double* table, std::size_t columns, const double* constant,
              const double* weights, const double* scale, std::size_t k, double* values, std::int64_t* rows,
              const Crew& crew);

// Queries are (n, trees); weights (trees,), or null for ones. Overwrites out, (rows, n).
template <class Leaf>
void matches(const Leaves<Leaf>& leaves, const Leaf* queries, std::size_t n, const double* weights, std::size_t first,
             std::size_t rows, double* out, const Crew& crew);

template <class Leaf>
void top_matches(const Leaves<Leaf>& leaves, const Leaf* queries, std::size_t n, const double* weights, std::size_t k,
                 double* values, std::int64_t* rows, const Crew& crew);

template <class Leaf>
void replay(const Leaves<Leaf>& leaves, const double* values, const double* targets, const double* weights, bool single,
            bool single_score, double* score, double* sums, double* counts, const Crew& crew);

// The tests of some trees, and how values are coded for them; see assign.cpp.
struct Node {
    std::int32_t view, rank;   // left if the code is at most the rank
    std::int32_t left, right;  // nodes of the same tree, after this one; or leaves, ~leaf
};

struct View {
    enum Kind { missing_low, missing_high, missing_zero, zero_low, zero_high, categories };
    std::int64_t column, kind;
    std::int64_t first, count;  // of categories: where their outcomes begin and how many there are
};

struct Routes {
    const std::int64_t* columns;  // (columns + 1, 2): feature, and where its thresholds begin
    std::size_t n_columns;
    const double* thresholds;  // increasing within a column
    const View* views;         // in the order of their columns
    std::size_t n_views;
    const std::uint8_t* outcomes;
    const Node* nodes;
    const std::int64_t* starts;  // (trees + 1,): where each tree's nodes begin
    std::size_t trees;
    bool single, strict;  // values are rounded to single precision; left is below a threshold, not up to it
    double zero;          // values up to this size are 0
};

template <class Value>
struct Table {
    const Value* data;
    std::size_t rows;
    std::ptrdiff_t row_stride, column_stride;
};

template <class Leaf>
struct Output {
    Leaf* data;  // (trees, rows), rows next to each other
    std::ptrdiff_t tree_stride;
};

// Returns whether any value is infinite.
template <class Value, class Leaf>
bool assign(const Routes& routes, const Table<Value>& table, const Output<Leaf>& out, const Crew& crew);

// Adds to out, (pairs, groups, outputs), what each group of features puts into the difference of the predictions of a query and
// a row; see differences.cpp. Pairs are (query, row), groups (features,), leaf values (leaves, outputs), tree after tree.
void feature_differences(const Routes& routes, const Table<double>& queries, const Table<double>& rows,
                         const std::int64_t* pairs, std::size_t n_pairs, const std::int32_t* groups,
                         std::size_t n_groups, const double* leaf_values, std::size_t outputs, double* out,
                         const Crew& crew);

// An array of any stride.
template <class T>
struct Strided {
    const T* data;
    std::ptrdiff_t stride;

    const T& operator[](std::size_t i) const { return data[static_cast<std::ptrdiff_t>(i) * stride]; }
};

// The nodes of a tree, children after their parents; -1 for a child marks a leaf.
struct TreeNodes {
    std::size_t size;
    Strided<std::int64_t> left, right, features;
    Strided<double> thresholds;  // left is up to it
    Strided<std::uint8_t> missing_left;
};

// Trees whose nodes rows follow one by one; see descend.cpp.
class Ways {
public:
    // A node, whose right child is next to the left one; or a leaf, which is its own left child and has no value to its right.
    struct Place {
        float threshold;
        std::uint32_t feature, left;
    };
    struct Tree {
        BufferOf<Place> places;
        BufferOf<std::uint32_t> leaves;        // (places,); of a node any
        BufferOf<std::uint8_t> missing_right;  // (places,)

        explicit Tree(std::size_t nodes) : places(nodes), leaves(nodes), missing_right(nodes) {}
    };

    Ways() = default;
    Ways(const Ways&) = delete;

    // Leaves are numbered in the order of the nodes. Returns whether the nodes make a tree; if not, it is not added.
    bool add(const TreeNodes& nodes);

    std::vector<Tree> trees;
    std::size_t features = 1, most_leaves = 0;  // of a row, at least; of a tree
};

template <class Leaf>
void descend(const Ways& ways, const Table<float>& table, std::size_t columns, const Output<Leaf>& out,
             const Crew& crew);

template <class Leaf>
void scaled_read_out(const Leaves<Leaf>& leaves, const double* table, std::size_t columns, const double* factors,
                     std::size_t first, std::size_t rows, double* out, const Crew& crew);

template <class Leaf>
void residual_factors(const Leaves<Leaf>& leaves, const double* steps, const double* levels, const double* draws,
                      const double* start, std::size_t first, std::size_t rows, double* out, const Crew& crew);

// The rounds of a fit, in which states of rows follow its scores; see gradient_factors in src/axil/_core.pyi.
struct Term {
    std::int64_t tree, output, place;
};

struct Move {
    std::int64_t tree, output;
};

struct Program {
    enum Link { identity, inverse, share };
    const std::int64_t* bounds;  // (rounds + 1, 2): where the terms and the moves of each round begin
    std::size_t rounds;
    const Term* terms;
    std::size_t n_terms;
    const double* scales;  // the tables of all terms, one after the other
    const Move* moves;
    std::size_t n_moves;
    const double* steps;        // the tables of all moves
    const std::uint8_t* draws;  // (trees, all rows); null: ones
    std::size_t outputs;
    Link link;
    bool product;  // whether moves multiply a state, or are added
};

template <class Leaf>
void gradient_factors(const Leaves<Leaf>& leaves, const Program& program, const double* intercepts,
                      const double* slopes, double* state, std::size_t first, std::size_t rows, std::size_t places,
                      double* out, const Crew& crew);

// Adds what rows put into the leaves of all terms, and its absolute values, to sums (leaves of all terms, 2).
template <class Leaf>
void gradient_sums(const Leaves<Leaf>& leaves, const Program& program, const double* intercepts, const double* slopes,
                   double* state, std::size_t first, std::size_t rows, double* sums, const Crew& crew);

// Adds factors (trees, rows) to sums (cells of these trees, groups), by the rows' codes.
template <class Leaf>
void factor_sums(const Leaves<Leaf>& leaves, const TreeList& trees, const double* factors, const std::int64_t* codes,
                 std::size_t groups, std::size_t first, std::size_t rows, double* sums, const Crew& crew);

// Rounds of several fits again; see refit.cpp. Terms and moves are as in `Program`, without places; moves come first.
struct Refit {
    const std::int64_t* bounds;  // (rounds + 1, 2): where the moves and the terms of each round begin
    std::size_t rounds;
    const Move* moves;
    std::size_t n_moves;
    const double* steps;  // (copies, the tables of all moves), which multiply states
    const Move* terms;
    std::size_t n_terms;
    Program::Link link;  // inverse or share
    double curvature;    // h = curvature p (1 - p); 0: h = 1
    std::size_t copies, outputs;
    const double *intercepts, *slopes;  // (outputs, rows)
    const double* weights;              // (copies, rows)
    const std::uint8_t* draws;          // (trees, rows); null: ones
    double* state;                      // (copies, outputs, rows)
    double* sums;                       // (copies, the leaves of all terms, 2): of g and of h
};

template <class Leaf>
void refit_rounds(const Leaves<Leaf>& leaves, const Refit& refit, const Crew& crew);

// Factors may be null, for ones.
template <class Leaf>
void pair_sums(const Leaves<Leaf>& leaves, const double* table, const double* factors, std::size_t first,
               std::size_t rows, double* out, const Crew& crew);

// How the scale of a leaf's sum follows from the weight of its rows.
struct LeafRule {
    double weight, least, scale, l2, steps;  // weights up to `least` are what rounding leaves of none
};

// Some rows in the fits without each of them; see deletion.cpp.
template <class Leaf>
struct Deletions {
    Leaves<Leaf> cells;
    std::size_t levels;                    // cells of one leaf: those of level i are numbered i * n_leaves + leaf
    const double* table;                   // (leaves, leaves)
    std::size_t stride;                    // from one row of the table to the next
    const LeafRule* rules;                 // (leaves,)
    const double* shifts;                  // (leaves,); null: none
    const double* draws;                   // (levels,)
    const double* weights;                 // (rows,); null: ones
    const double* values;                  // (leaves, outputs)
    const double* slopes;                  // (leaves,)
    const double* steps;                   // (trees, trees)
    bool in_turn;                          // the steps are zero but on the diagonal
    const double* drifts;                  // (trees,)
    const double *start, *base, *changed;  // (outputs, rows)
    std::size_t first, rows, outputs;
    double *residuals, *added;  // (outputs, trees + 1, rows) and (outputs, trees, rows); null: not wanted
};

template <class Leaf>
void deletions(const Deletions<Leaf>& job, const Crew& crew);

// The entries of rows in their leaves: weight * draw * factor; see leaf_rows.cpp. Cells of level i are numbered as those of
// `Deletions`, starts are of leaves.
struct LeafRows {
    std::size_t levels;
    const double* draws;  // (levels, leaves) where by_leaf, else (levels,)
    bool by_leaf;
    const double* weights;  // (rows,); null: ones
    const double* factors;  // (leaves,)
    std::int64_t* ends;  // (leaves + 1,): where the entries of each leaf begin; or, after a first 0, how many there are
    double* data;        // (entries,); null: count them
    std::int32_t* rows;  // (entries,)
};

// Returns whether the entries of every leaf fill the room between its ends.
template <class Leaf>
bool leaf_rows(const Leaves<Leaf>& cells, const LeafRows& job, const Crew& crew);

// The entries of rows, tree after tree in the order of the leaves, in blocks of rows; see leaf_order.cpp.
struct LeafOrder {
    const double* values;       // (entries,)
    const std::uint16_t* rows;  // (entries,): from the first row of the block on
    const std::int64_t* ends;   // (blocks, cells + 1): where the entries of each cell begin
    std::size_t blocks, cells, block_rows;
};

// Some cells for each of `count` queries, with coefficients; null: ones.
struct CellList {
    const std::int64_t* starts;  // (count + 1,): where those of each query begin
    const std::int64_t* cells;
    const double* coefficients;
    std::size_t count;
};

// Overwrites out, (queries, rows).
void ordered_read_out(const LeafOrder& order, const CellList& queries, double* out, std::size_t rows, const Crew& crew);

// Rows one after the other; see online.cpp.
std::size_t number_keys(const std::uint64_t* keys, std::size_t rows, std::int64_t* numbers);
template <class Value>
void encodings_before(const std::uint32_t* numbers, std::size_t count, const Value* values, std::size_t rows,
                      const float* scales, std::size_t encodings, std::uint8_t* bins);
void exchange(const std::int64_t* partners, std::size_t rows, std::int64_t* order);

// Draws of rows; see bags.cpp. Overwrites times, (rows,).
void bootstrap(std::uint32_t seed, std::size_t rows, std::size_t drawn, std::int64_t* times);

// The leaves of one tree. Overwrites sums, (n_leaves, columns), and counts, (n_leaves,).
template <class Leaf>
void drawn_sums(const Leaf* leaves, std::size_t rows, const double* draws, const double* values, std::size_t columns,
                std::size_t n_leaves, double* sums, std::int64_t* counts);

// The same of low and high, (n_leaves, columns) each; nan where a leaf has no value of a column.
template <class Leaf>
void ranges(const Leaf* leaves, std::size_t rows, const double* values, std::size_t columns, std::size_t n_leaves,
            double* low, double* high);

}  // namespace axil
