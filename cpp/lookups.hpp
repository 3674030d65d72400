// Look-ups: what a read-out adds up for every row, and the table it reads.
//
// Consecutive trees of few leaves are added up first, and the sum of each such group to the row's: which trees these are
// follows from their leaves alone, so a sum has the same bits whatever rows and columns are read with it. Reading is bound by
// loads from the nearest caches, so where it pays a group is joined: one entry for every combination of its leaves holds the
// sum of theirs. Only combinations that occur are ever touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "buffer.hpp"
#include "kernels.hpp"
#include "tiles.hpp"

namespace axil {

// Some consecutive trees that are added up together.
struct Lookup {
    std::size_t first, last;   // trees first .. last - 1
    std::size_t start, cells;  // where its entries begin among those of all look-ups, and how many there are
    bool joined;               // an entry for each combination of leaves; else for each leaf, tree by tree

    std::size_t numbers() const { return joined ? 1 : last - first; }  // of entries, for a row
};

// Cells of joined trees: those that occur, a third or so, stay in the second-level cache.
constexpr std::size_t most_cells = 1024;
constexpr std::size_t most_columns = 32;  // of a joined table: more would not fit the last cache
constexpr std::size_t rows_per_cell = 4;  // below that joining the tables costs more than it saves

// Look-ups added at a time, so that their entries stay in the nearest caches; of joined trees fewer.
constexpr std::size_t most_together = 12, joined_together = 4;

template <class Leaf>
using IdOf = std::conditional_t<sizeof(Leaf) == 4, std::uint32_t, std::uint16_t>;

template <class Leaf>
std::vector<Lookup> lookups_of(const Leaves<Leaf>& leaves, std::size_t rows, std::size_t columns) {
    std::vector<Lookup> all;
    for (std::size_t t = 0, start = 0; t < leaves.trees;) {
        std::size_t end = t + 1, cells = leaves.count(t);
        while (end < leaves.trees && end - t < most_together && leaves.count(end) <= most_cells / cells)
            cells *= leaves.count(end++);
        const bool joined = end == t + 1 || (columns <= most_columns && cells * rows_per_cell <= rows);
        if (!joined) cells = leaves.start(end) - leaves.start(t);
        all.push_back({t, end, start, cells, joined});
        start += cells;
        t = end;
    }
    return all;
}

inline std::size_t cells_of(const std::vector<Lookup>& all) {
    return all.empty() ? 0 : all.back().start + all.back().cells;
}

// A row's sum in double as read_out computes it, where entry(t) is that of the row's leaf in tree t. All that screen rows in single
// precision take their values from here, so they agree to the bit.
template <class Entry>
double exact_sum(const std::vector<Lookup>& lookups, double constant, const Entry& entry) {
    double sum = constant;
    for (const Lookup& lookup : lookups) {
        double part = 0.0;
        for (std::size_t t = lookup.first; t < lookup.last; ++t) part += entry(t);
        sum += part;
    }
    return sum;
}

// The entries of every row of a block: (numbers of all look-ups, stride).
template <class Leaf>
AXIL_INLINE void number_cells(const Leaves<Leaf>& leaves, const Lookup* lookup, const Lookup* end, std::size_t begin,
                              std::size_t rows, std::size_t stride, IdOf<Leaf>* ids) {
    using Id = IdOf<Leaf>;
    for (; lookup != end; ++lookup, ids += stride)
        for (std::size_t t = lookup->first; t < lookup->last; ++t) {
            const Leaf* leaf = leaves.tree(t) + begin;
            if (t > lookup->first && !lookup->joined) ids += stride;
            if (t == lookup->first || !lookup->joined) {
                for (std::size_t r = 0; r < rows; ++r) ids[r] = leaf[r];
                continue;
            }
            const Id n = static_cast<Id>(leaves.count(t));
            for (std::size_t r = 0; r < rows; ++r) ids[r] = static_cast<Id>(ids[r] * n + leaf[r]);
        }
}

// Fill the entries of one look-up in a tile of a tile-by-tile table from the (leaves, columns) table of all trees.
template <class Real, class Leaf>
void join(const Leaves<Leaf>& leaves, const Lookup& lookup, const double* table, std::size_t columns,
          std::size_t first_column, const Tile& tile, Real* entries) {
    const std::size_t width = tile.width;
    if (!lookup.joined) {
        const double* from = table + leaves.start(lookup.first) * columns + first_column + tile.column;
        for (std::size_t l = 0; l < lookup.cells; ++l, from += columns, entries += width) {
            for (std::size_t c = 0; c < tile.used; ++c) entries[c] = static_cast<Real>(from[c]);
            for (std::size_t c = tile.used; c < width; ++c) entries[c] = 0;
        }
        return;
    }
    std::vector<double> before(width, 0.0), sums;  // of the combinations of all trees but the last
    for (std::size_t t = lookup.first; t < lookup.last; ++t) {
        const std::size_t n = leaves.count(t), cells = before.size() / width;
        const double* own = table + leaves.start(t) * columns + first_column + tile.column;
        const auto add = [&](auto* to) {
            for (std::size_t cell = 0; cell < cells; ++cell)
                for (std::size_t l = 0; l < n; ++l, to += width) {
                    const double *a = before.data() + cell * width, *b = own + l * columns;
                    for (std::size_t c = 0; c < tile.used; ++c) to[c] = static_cast<Real>(a[c] + b[c]);
                    for (std::size_t c = tile.used; c < width; ++c) to[c] = 0;
                }
        };
        if (t + 1 == lookup.last) return add(entries);
        sums.resize(cells * n * width);
        for (std::size_t cell = 0; cell < cells; ++cell)
            for (std::size_t l = 0; l < n; ++l)
                for (std::size_t c = 0; c < tile.used; ++c)
                    sums[(cell * n + l) * width + c] = before[cell * width + c] + own[l * columns + c];
        before.swap(sums);
    }
}

// The tile-by-tile table of some columns for all look-ups.
template <class Real, class Leaf>
void join_all(const Leaves<Leaf>& leaves, const std::vector<Lookup>& lookups, const double* table, std::size_t columns,
              std::size_t first_column, const std::vector<Tile>& tiles, Real* packed, const Crew& crew) {
    const std::size_t total = cells_of(lookups);
    parallel(crew, lookups.size(), [&](std::size_t i, std::size_t) {
        for (const Tile& tile : tiles)
            join(leaves, lookups[i], table, columns, first_column, tile,
                 packed + total * tile.column + lookups[i].start * tile.width);
    });
}

// The r-th of the numbers that lie next to each other in a word: the lowest one comes first, or last if big-endian.
template <class Id>
AXIL_INLINE constexpr Id number_in(std::uint64_t word, std::size_t r, bool big_endian) {
    constexpr std::size_t last = sizeof(word) / sizeof(Id) - 1;
    return static_cast<Id>(word >> ((big_endian ? last - r : r) * 8 * sizeof(Id)));
}
static_assert(number_in<std::uint16_t>(0x0004000300020001, 0, false) == 1 &&
              number_in<std::uint16_t>(0x0004000300020001, 3, false) == 4 &&
              number_in<std::uint16_t>(0x0001000200030004, 0, true) == 1 &&
              number_in<std::uint16_t>(0x0001000200030004, 3, true) == 4 &&
              number_in<std::uint32_t>(0x0000000100000002, 1, true) == 2);

#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__)
constexpr bool big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
#else
constexpr bool big_endian = false;  // compilers that do not say so know no such machine
#endif

// R consecutive numbers in as few loads as possible: it is loads that a read-out waits for.
template <std::size_t R, class Id>
struct Numbers {
    static constexpr std::size_t per_word = sizeof(std::uint64_t) / sizeof(Id), words = (R + per_word - 1) / per_word;
    std::uint64_t word[words];

    AXIL_INLINE explicit Numbers(const Id* from) {
        for (std::size_t i = 0; i < words; ++i) word[i] = 0;
        std::memcpy(word, from, R * sizeof(Id));
    }
    AXIL_INLINE std::size_t operator[](std::size_t r) const {
        return number_in<Id>(word[r / per_word], r % per_word, big_endian);
    }
};

// Some trees whose entries are added up first.
struct Span {
    std::size_t first, trees;
};

// Add some look-ups of one entry each to the sums of R rows of a tile of C columns, on registers of W doubles.
template <class Real, std::size_t C, std::size_t W, std::size_t R, class Id>
AXIL_INLINE void add_rows(const Real* const* entries, std::size_t n_lookups, const Id* ids, std::size_t stride,
                          Real* sums) {
    using Row = Vectors<C, W, Real>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    V total[R * n];
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) total[i] = load<V>(sums + i * Row::lanes);
    for (std::size_t q = 0; q < n_lookups; ++q) {
        const Real* table = entries[q];
        const Numbers<R, Id> numbers(ids + q * stride);
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            const Real* entry = table + numbers[r] * C;
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i) total[r * n + i] += load<V>(entry + i * Row::lanes);
        }
    }
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) store(sums + i * Row::lanes, total[i]);
}

// The same of look-ups of two trees each that are not joined.
template <class Real, std::size_t C, std::size_t W, std::size_t R, class Id>
AXIL_INLINE void add_pairs(const Real* const* entries, std::size_t n_trees, const Id* ids, std::size_t stride,
                           Real* sums) {
    using Row = Vectors<C, W, Real>;
    using V = typename Row::type;
    constexpr std::size_t n = Row::count;
    V total[R * n];
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) total[i] = load<V>(sums + i * Row::lanes);
    for (std::size_t q = 0; q < n_trees; q += 2) {
        const Real *table = entries[q], *next = entries[q + 1];
        const Numbers<R, Id> numbers(ids + q * stride), others(ids + (q + 1) * stride);
        AXIL_UNROLL for (std::size_t r = 0; r < R; ++r) {
            const Real *entry = table + numbers[r] * C, *other = next + others[r] * C;
            AXIL_UNROLL for (std::size_t i = 0; i < n; ++i)
                total[r * n + i] += load<V>(entry + i * Row::lanes) + load<V>(other + i * Row::lanes);
        }
    }
    AXIL_UNROLL for (std::size_t i = 0; i < R * n; ++i) store(sums + i * Row::lanes, total[i]);
}

// The same of any look-ups, for one row.
template <class Real, std::size_t C, std::size_t W, class Id>
AXIL_INLINE void add_spans(const Real* const* entries, const Span* spans, std::size_t n_spans, const Id* ids,
                           std::size_t stride, Real* sums) {
    using Row = Vectors<C, W, Real>;
    using V = typename Row::type;
    AXIL_UNROLL for (std::size_t i = 0; i < Row::count; ++i) {
        V total = load<V>(sums + i * Row::lanes);
        for (const Span* span = spans; span != spans + n_spans; ++span) {
            const std::size_t q = span->first;
            V part = load<V>(entries[q] + ids[q * stride] * C + i * Row::lanes);
            for (std::size_t u = q + 1; u < q + span->trees; ++u)
                part += load<V>(entries[u] + ids[u * stride] * C + i * Row::lanes);
            total += part;
        }
        store(sums + i * Row::lanes, total);
    }
}

// The sums over all look-ups of a block's rows, for a tile of C columns whose table begins at `packed`; sums begin as they are.
template <class Real, std::size_t C, std::size_t W, class Leaf>
AXIL_INLINE void add_all(const Leaves<Leaf>& leaves, const std::vector<Lookup>& lookups, const Real* packed,
                         std::size_t begin, std::size_t rows, std::size_t stride, IdOf<Leaf>* ids, Real* sums) {
    constexpr std::size_t R = Vectors<C, W, Real>::rows;
    std::size_t all = 0;
    for (const Lookup& lookup : lookups) all += lookup.numbers();
    const std::size_t together = all < leaves.trees ? joined_together : most_together;
    for (std::size_t from = 0, to = 0; from < lookups.size(); from = to) {
        const Real* entries[most_together];
        Span spans[most_together];
        std::size_t n = 0, n_spans = 0;
        bool pairs = true;
        for (; to < lookups.size() && (n == 0 || n + lookups[to].numbers() <= together); ++to) {
            const Lookup& lookup = lookups[to];
            spans[n_spans++] = {n, lookup.numbers()};
            pairs = pairs && lookup.numbers() == 2;
            for (std::size_t t = 0; t < lookup.numbers(); ++t)
                entries[n++] = packed +
                               (lookup.start + leaves.start(lookup.first + t) - leaves.start(lookup.first)) * C;
        }
        number_cells(leaves, lookups.data() + from, lookups.data() + to, begin, rows, stride, ids);
        std::size_t r = 0;
        if (n == n_spans) {
            for (; r + R <= rows; r += R) add_rows<Real, C, W, R>(entries, n, ids + r, stride, sums + r * C);
            for (; r < rows; ++r) add_rows<Real, C, W, 1>(entries, n, ids + r, stride, sums + r * C);
        } else if (pairs) {
            for (; r + R <= rows; r += R) add_pairs<Real, C, W, R>(entries, n, ids + r, stride, sums + r * C);
            for (; r < rows; ++r) add_pairs<Real, C, W, 1>(entries, n, ids + r, stride, sums + r * C);
        } else {
            for (; r < rows; ++r) add_spans<Real, C, W>(entries, spans, n_spans, ids + r, stride, sums + r * C);
        }
    }
}

}  // namespace axil
