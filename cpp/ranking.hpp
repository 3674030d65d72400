// The order of the rows that `top` looks for, what is held of them on the way, and the places they take.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel.hpp"

namespace axil {
namespace ranking {

struct Candidate {
    double size, value;  // size = |scale * value|
    std::int64_t row;
};

inline bool before(const Candidate& a, const Candidate& b) {
    return a.size > b.size || (a.size == b.size && a.row < b.row);
}

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

// What some rows, one after the other, add to every query.
class Largest {
public:
    Largest(std::size_t k, std::vector<double> least) : k_(k), least_(std::move(least)), held_(least_.size()) {}

    // Sizes up to this are of no account.
    double least(std::size_t query) const { return least_[query]; }
    const double* least() const { return least_.data(); }
    void raise(std::size_t query, double least) { least_[query] = std::max(least_[query], least); }

    // Rows come in order.
    void offer(std::size_t s, const Candidate& candidate) {
        if (!(candidate.size > least_[s])) return;
        held_[s].push_back(candidate);
        if (held_[s].size() >= 2 * k_ + 16) cut(s);
    }

    const std::vector<Candidate>& of(std::size_t query) const { return held_[query]; }

private:
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

// Let every query's places take what was found.
template <class Places>
void merge(const std::vector<Largest>& found, std::size_t columns, std::size_t k, const Places& standing,
           const Crew& crew) {
    const std::size_t group = 1 + 20000 / k;  // queries, worth handing to a thread
    parallel(crew, (columns + group - 1) / group, [&](std::size_t i, std::size_t) {
        for (std::size_t s = i * group; s < std::min((i + 1) * group, columns); ++s) {
            std::vector<Candidate> candidates;
            for (const Largest& one : found) candidates.insert(candidates.end(), one.of(s).begin(), one.of(s).end());
            if (!candidates.empty()) standing(s).merge(std::move(candidates));
        }
    });
}

}  // namespace ranking
}  // namespace axil
