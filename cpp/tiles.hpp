// Column tiles: the columns of a table or a state in groups of 16, 8, 4, 2 and 1, so that a row of a tile is a fixed
// number of vector registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "targets.hpp"

namespace axil {

struct Tile {
    std::size_t column;  // the first
    std::size_t width;   // 16, 8, 4, 2 or 1
    std::size_t used;    // columns that exist; fewer than width only in a padded last tile
};

// The tiles of so many columns. With `padded` a last tile may be up to a quarter empty rather than cut in two.
inline std::vector<Tile> tiles_of(std::size_t columns, bool padded) {
    std::vector<Tile> tiles;
    for (std::size_t column = 0; column < columns;) {
        const std::size_t left = columns - column;
        std::size_t width = 16;
        while (left < (padded ? width - width / 4 : width)) width /= 2;
        const std::size_t used = left < width ? left : width;
        tiles.push_back({column, width, used});
        column += used;
    }
    return tiles;
}

inline std::size_t padded_columns(const std::vector<Tile>& tiles) {
    return tiles.empty() ? 0 : tiles.back().column + tiles.back().width;
}

// Doubles that begin at a cache line.
class Buffer {
public:
    explicit Buffer(std::size_t size)
        : data_(static_cast<double*>(::operator new(size * sizeof(double), line))) {}
    double* get() const { return data_.get(); }

private:
    static constexpr std::align_val_t line{64};
    struct Delete {
        void operator()(double* p) const { ::operator delete(p, line); }
    };
    std::unique_ptr<double, Delete> data_;
};

// Tile-by-tile copies of (rows, columns) tables: each tile is (total, width), and starts at total * its first column.
inline double* place(double* packed, std::size_t total, const Tile& tile, std::size_t row) {
    return packed + total * tile.column + row * tile.width;
}

// Copy n rows of a table to the rows from `first` on of a tile-by-tile copy.
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

inline void unpack(double* table, std::size_t n, std::size_t columns, const std::vector<Tile>& tiles,
                   double* packed, std::size_t total, std::size_t first) {
    for (const Tile& tile : tiles) {
        const double* from = place(packed, total, tile, first);
        for (std::size_t l = 0; l < n; ++l, from += tile.width)
            std::copy_n(from, tile.used, table + l * columns + tile.column);
    }
}

// A row of a tile of C columns, on a machine whose vector registers hold W doubles, is `count` vectors.
template <std::size_t C, std::size_t W>
struct Vectors {
    static constexpr std::size_t lanes = C < W ? C : W;
    static constexpr std::size_t count = C / lanes;
    // Rows worked on together: enough additions in flight to hide their latency, and no more than 16 registers.
    static constexpr std::size_t rows = count >= 2 ? 16 / count : 8;
#if defined(__GNUC__)
    typedef double type __attribute__((vector_size(lanes * sizeof(double))));
#else
    using type = double;
#endif
};

template <std::size_t W>
struct Vectors<1, W> {
    static constexpr std::size_t lanes = 1, count = 1, rows = 8;
    using type = double;
};

template <class V>
AXIL_INLINE void load(V& to, const double* from) {
    std::memcpy(&to, from, sizeof(V));
}

template <class V>
AXIL_INLINE void store(double* to, const V& from) {
    std::memcpy(to, &from, sizeof(V));
}

}  // namespace axil
