// top: the running k largest |scale * value| of every query over blocks of rows.
//
// Each chunk of rows collects, per query, what beats the k-th largest so far: few rows after the first ones, so nearly
// all the time goes into one comparison per value. Size and then row number order the rows completely, so neither
// chunks nor threads can change the outcome.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels.hpp"
#include "targets.hpp"

namespace axil {
namespace ranking {

constexpr std::size_t screen_rows = 64;
constexpr std::size_t least_rows = 1024, least_numbers = 100000;  // of a chunk

struct Candidate {
    double size, value;  // size = |scale * value|
    std::int64_t row;
};

bool before(const Candidate& a, const Candidate& b) {
    return a.size > b.size || (a.size == b.size && a.row < b.row);
}

struct Block {
    const double* values;  // (rows, columns)
    std::size_t rows, columns, first;
    const double* scale;

    double scale_of(std::size_t j) const { return scale ? scale[first + j] : 1.0; }
};

// hits[i]: does any value of row begin + i exceed its query's least?
template <std::size_t>
AXIL_INLINE void screen_lanes(const Block& block, std::size_t begin, std::size_t n, const double* least,
                              std::uint64_t* hits) {
    for (std::size_t i = 0; i < n; ++i) {
        const double* row = block.values + (begin + i) * block.columns;
        const double scale = block.scale_of(begin + i);
        std::uint64_t hit = 0;  // as wide as a double, so that it vectorises
        for (std::size_t s = 0; s < block.columns; ++s) hit |= std::fabs(scale * row[s]) > least[s] ? 1 : 0;
        hits[i] = hit;
    }
}

using Size = std::size_t;
AXIL_VERSIONS(screen, (const Block& block, Size begin, Size n, const double* least, std::uint64_t* hits),
              (block, begin, n, least, hits))

// What one chunk of rows adds to every query.
class Largest {
public:
    Largest(std::size_t k, std::vector<double> least) : k_(k), least_(std::move(least)), held_(least_.size()) {}

    void add(const Block& block, std::size_t begin, std::size_t end) {
        std::uint64_t hits[screen_rows];
        for (; begin < end; begin += screen_rows) {
            const std::size_t n = std::min(screen_rows, end - begin);
            screen(block, begin, n, least_.data(), hits);
            for (std::size_t i = 0; i < n; ++i)
                if (hits[i]) add_row(block, begin + i);
        }
    }

    const std::vector<Candidate>& of(std::size_t query) const { return held_[query]; }

private:
    void add_row(const Block& block, std::size_t j) {
        const double* row = block.values + j * block.columns;
        const double scale = block.scale_of(j);
        for (std::size_t s = 0; s < block.columns; ++s) {
            const double size = std::fabs(scale * row[s]);
            if (!(size > least_[s])) continue;
            held_[s].push_back({size, row[s], static_cast<std::int64_t>(block.first + j)});
            if (held_[s].size() >= 2 * k_ + 16) cut(s);
        }
    }

    // Keep the first k. A later row of equal size ranks behind them, so from now on only larger ones count.
    void cut(std::size_t s) {
        auto& held = held_[s];
        std::nth_element(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(k_ - 1), held.end(), before);
        held.resize(k_);
        least_[s] = std::max(least_[s], held.back().size);
    }

    std::size_t k_;
    std::vector<double> least_;
    std::vector<std::vector<Candidate>> held_;
};

// The k places of one query, as they stand before the block.
class Standing {
public:
    Standing(double* values, std::int64_t* rows, std::size_t k, const double* scale)
        : values_(values), rows_(rows), k_(k), scale_(scale) {}

    // The size that a row of the block must exceed to find a place.
    double least(std::size_t first) const {
        if (rows_[k_ - 1] < 0) return -1;
        const double size = at(k_ - 1).size;
        const bool in_order = *std::max_element(rows_, rows_ + k_) < static_cast<std::int64_t>(first);
        return in_order ? size : std::nextafter(size, -1.0);  // a smaller row number wins a tie
    }

    void merge(std::vector<Candidate> candidates) {
        for (std::size_t i = 0; i < k_ && rows_[i] >= 0; ++i) candidates.push_back(at(i));
        const std::size_t n = std::min(k_, candidates.size());
        std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(n), candidates.end(),
                          before);
        for (std::size_t i = 0; i < n; ++i) {
            values_[i] = candidates[i].value;
            rows_[i] = candidates[i].row;
        }
    }

private:
    Candidate at(std::size_t i) const {
        return {std::fabs((scale_ ? scale_[rows_[i]] : 1.0) * values_[i]), values_[i], rows_[i]};
    }

    double* values_;
    std::int64_t* rows_;
    std::size_t k_;
    const double* scale_;
};

}  // namespace ranking

void top(const double* block, std::size_t n_rows, std::size_t columns, std::size_t first, const double* scale,
         std::size_t k, double* values, std::int64_t* rows, const Crew& crew) {
    using namespace ranking;
    if (k == 0 || columns == 0) return;
    const auto standing = [&](std::size_t s) { return Standing(values + s * k, rows + s * k, k, scale); };
    std::vector<double> least(columns);
    for (std::size_t s = 0; s < columns; ++s) least[s] = standing(s).least(first);

    // A chunk holds at most 2 k + 16 candidates a query: never much more than the block itself.
    const Chunks chunks(n_rows, std::max({least_rows, 4 * k, least_numbers / columns}), 64);
    std::vector<Largest> found(chunks.count(), Largest(k, least));
    const Block rows_of{block, n_rows, columns, first, scale};
    parallel(crew, chunks.count(),
             [&](std::size_t i, std::size_t) { found[i].add(rows_of, chunks.begin(i), chunks.end(i)); });

    const std::size_t group = 1 + 20000 / k;  // queries, worth handing to a thread
    parallel(crew, (columns + group - 1) / group, [&](std::size_t i, std::size_t) {
        for (std::size_t s = i * group; s < std::min((i + 1) * group, columns); ++s) {
            std::vector<Candidate> candidates;
            for (const Largest& chunk : found)
                candidates.insert(candidates.end(), chunk.of(s).begin(), chunk.of(s).end());
            if (!candidates.empty()) standing(s).merge(std::move(candidates));
        }
    });
}

}  // namespace axil
