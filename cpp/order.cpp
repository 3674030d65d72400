// order_of: rows in the order of a k-d tree over their places, cut where blocks of every level end.
#include <algorithm>
#include <utility>
#include <vector>

#include "blocks.hpp"

namespace axil {
namespace blocking {
namespace {

constexpr std::size_t small = 16384;   // rows below which a thread goes on by itself
constexpr std::size_t sampled = 1024;  // rows that say along which axis the others lie apart

using Range = std::pair<std::size_t, std::size_t>;
using Keyed = std::pair<float, std::uint32_t>;  // ties by row, so that the order is complete

class Splitter {
public:
    Splitter(const float* places, std::size_t dimensions, std::uint32_t* order)
        : places_(places), dimensions_(dimensions), order_(order) {}

    // Where the second half begins: whole blocks, as many as make a full tree.
    static std::size_t middle(const Range& range) {
        const std::size_t blocks = (range.second - range.first + block_rows - 1) / block_rows;
        std::size_t half = 1;
        while (2 * half < blocks) half *= 2;
        return range.first + half * block_rows;
    }

    static bool is_block(const Range& range) { return range.second - range.first <= block_rows; }

    void split(const Range& range, std::vector<Keyed>& keyed) const {
        const std::size_t axis = widest_axis(range);
        keyed.resize(range.second - range.first);
        for (std::size_t i = 0; i < keyed.size(); ++i) {
            const std::uint32_t row = order_[range.first + i];
            keyed[i] = {place(row, axis), row};
        }
        const auto at = keyed.begin() + static_cast<std::ptrdiff_t>(middle(range) - range.first);
        std::nth_element(keyed.begin(), at, keyed.end());
        for (std::size_t i = 0; i < keyed.size(); ++i) order_[range.first + i] = keyed[i].second;
    }

    void split_all(const Range& range, std::vector<Keyed>& keyed) const {
        if (is_block(range)) return;
        split(range, keyed);
        split_all({range.first, middle(range)}, keyed);
        split_all({middle(range), range.second}, keyed);
    }

private:
    float place(std::uint32_t row, std::size_t axis) const { return places_[row * dimensions_ + axis]; }

    std::size_t widest_axis(const Range& range) const {
        const std::size_t step = 1 + (range.second - range.first) / sampled;
        std::size_t widest = 0;
        double most = -1;
        for (std::size_t axis = 0; axis < dimensions_; ++axis) {
            double sum = 0, squares = 0, n = 0;
            for (std::size_t i = range.first; i < range.second; i += step, ++n) {
                const double x = place(order_[i], axis);
                sum += x;
                squares += x * x;
            }
            const double spread = squares - sum * sum / n;
            if (spread > most) most = spread, widest = axis;
        }
        return widest;
    }

    const float* places_;
    std::size_t dimensions_;
    std::uint32_t* order_;
};

}  // namespace

std::unique_ptr<std::uint32_t[]> order_of(const float* places, std::size_t rows, std::size_t dimensions,
                                          const Crew& crew) {
    std::unique_ptr<std::uint32_t[]> order(new std::uint32_t[rows]);
    for (std::size_t j = 0; j < rows; ++j) order[j] = static_cast<std::uint32_t>(j);
    const Splitter splitter(places, dimensions, order.get());
    std::vector<Range> large{{0, rows}}, finished, next;
    std::vector<std::vector<Keyed>> keyed(crew.n_threads);
    while (!large.empty()) {
        next.clear();
        for (const Range& range : large) {
            if (range.second - range.first <= small) {
                finished.push_back(range);
                continue;
            }
            next.push_back(range);
        }
        parallel(crew, next.size(), [&](std::size_t i, std::size_t thread) { splitter.split(next[i], keyed[thread]); });
        large.clear();
        for (const Range& range : next) {
            const std::size_t middle = Splitter::middle(range);
            large.push_back({range.first, middle});
            large.push_back({middle, range.second});
        }
    }
    parallel(crew, finished.size(),
             [&](std::size_t i, std::size_t thread) { splitter.split_all(finished[i], keyed[thread]); });
    return order;
}

}  // namespace blocking
}  // namespace axil
