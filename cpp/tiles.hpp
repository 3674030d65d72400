// Column tiles: the columns of a table or a state in groups of 16, 8, 4, 2 and 1, so that a row of a tile is a fixed
// number of vector registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "buffer.hpp"
#include "instruction_sets.hpp"
#include "kernels.hpp"

namespace axil {

constexpr std::size_t widest = 16;

struct Tile {
    std::size_t column;  // the first
    std::size_t width;   // 16, 8, 4, 2 or 1
    std::size_t used;    // columns that exist; fewer than width only in a padded last tile
};

// The tiles of so many columns. Padded, the last may be up to a quarter empty rather than cut in two.
inline std::vector<Tile> tiles_of(std::size_t columns, bool padded) {
    std::vector<Tile> tiles;
    for (std::size_t column = 0; column < columns;) {
        const std::size_t left = columns - column;
        std::size_t width = widest;
        while (left < (padded ? width - width / 4 : width)) width /= 2;
        const std::size_t used = std::min(left, width);
        tiles.push_back({column, width, used});
        column += used;
    }
    return tiles;
}

// Call f, a lambda that is AXIL_INLINE_LAMBDA, with the width of a tile as a type whose value is a constant. Numbers that the
// lambda captures by value stay in registers.
template <class F>
AXIL_INLINE void by_width(const Tile& tile, const F& f) {
    switch (tile.width) {
        case 16: return f(std::integral_constant<std::size_t, 16>());
        case 8: return f(std::integral_constant<std::size_t, 8>());
        case 4: return f(std::integral_constant<std::size_t, 4>());
        case 2: return f(std::integral_constant<std::size_t, 2>());
        default: return f(std::integral_constant<std::size_t, 1>());
    }
}

inline std::size_t padded_columns(const std::vector<Tile>& tiles) {
    return tiles.empty() ? 0 : tiles.back().column + tiles.back().width;
}

// Some trees, their leaves numbered consecutively.
template <class Leaf>
struct Group {
    std::vector<const Leaf*> leaves;  // of the training rows, tree by tree
    std::vector<std::size_t> starts;  // where each tree's leaves begin; last their number

    Group() : starts{0} {}
    std::size_t size() const { return leaves.size(); }
    std::size_t total() const { return starts.back(); }
    void add(const Leaves<Leaf>& all, std::size_t t) {
        leaves.push_back(all.tree(t));
        starts.push_back(total() + all.count(t));
    }
};

// One tree within one tile: the rows' leaves, and the leaves' entries in a tile-by-tile table.
template <class Leaf>
struct Tree {
    const Leaf* leaves;
    double* entries;
};

// A tile-by-tile table has the tiles one after the other, each (total, width), so that an entry is whole vectors and
// no more cache lines than it needs.
inline double* place(double* packed, std::size_t total, const Tile& tile, std::size_t leaf) {
    return packed + total * tile.column + leaf * tile.width;
}

// (tiles, trees): pointers, because an offset would be added to every look-up's address again.
template <class Leaf>
std::vector<Tree<Leaf>> trees_by_tile(const Group<Leaf>& group, const std::vector<Tile>& tiles, double* packed) {
    std::vector<Tree<Leaf>> trees;
    for (const Tile& tile : tiles)
        for (std::size_t t = 0; t < group.size(); ++t)
            trees.push_back({group.leaves[t], place(packed, group.total(), tile, group.starts[t])});
    return trees;
}

// Copy n rows of a (rows, columns) table to the entries from `first` on of a tile-by-tile one; spare columns are zero.
inline void pack(const double* table, std::size_t n, std::size_t columns, const std::vector<Tile>& tiles,
                 double* packed, std::size_t total, std::size_t first) {
    for (const Tile& tile : tiles) {
        double* to = place(packed, total, tile, first);
        for (std::size_t l = 0; l < n; ++l, to += tile.width) {
            std::copy_n(table + l * columns + tile.column, tile.used, to);
            std::fill(to + tile.used, to + tile.width, 0.0);
        }
    }
}

inline void unpack(double* table, std::size_t n, std::size_t columns, const std::vector<Tile>& tiles, double* packed,
                   std::size_t total, std::size_t first) {
    for (const Tile& tile : tiles) {
        const double* from = place(packed, total, tile, first);
        for (std::size_t l = 0; l < n; ++l, from += tile.width)
            std::copy_n(from, tile.used, table + l * columns + tile.column);
    }
}

template <class Real, std::size_t Lanes>
struct Vector {
    AXIL_VECTOR(type, Real, Lanes);
};

template <class Real>
struct Vector<Real, 1> {
    using type = Real;
};

// A row of a tile of C columns, on a machine whose vector registers hold W doubles, is `count` vectors. Where W is 1 there are none.
template <std::size_t C, std::size_t W, class Real = double>
struct Vectors {
    static constexpr std::size_t lanes = W == 1 ? 1 : std::min(C, W * sizeof(double) / sizeof(Real));
    static constexpr std::size_t count = C / lanes;
    // Rows worked on together: their sums stay in (AVX2's 16) registers, and hide the latency of the additions.
    static constexpr std::size_t rows = std::min<std::size_t>(std::max<std::size_t>(16 / count, 1), 8);
    using type = typename Vector<Real, lanes>::type;
};

template <class V>
AXIL_INLINE V load(const void* from) {
    V to;
    std::memcpy(&to, from, sizeof(V));
    return to;
}

template <class V>
AXIL_INLINE void store(void* to, const V& from) {
    std::memcpy(to, &from, sizeof(V));
}

}  // namespace axil
