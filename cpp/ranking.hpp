// The order of the rows that `top` looks for, and the places they take.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

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

}  // namespace ranking
}  // namespace axil
