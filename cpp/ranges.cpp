// ranges: the lowest and the highest value of every column among the rows of each leaf.
#include <algorithm>
#include <limits>

#include "kernels.hpp"

namespace axil {

template <class Leaf>
void ranges(const Leaf* leaves, std::size_t rows, const double* values, std::size_t columns, std::size_t n_leaves,
            double* low, double* high) {
    constexpr double beyond = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
    std::fill_n(low, n_leaves * columns, beyond);
    std::fill_n(high, n_leaves * columns, -beyond);
    for (std::size_t j = 0; j < rows; ++j, values += columns) {
        double *own_low = low + leaves[j] * columns, *own_high = high + leaves[j] * columns;
        for (std::size_t c = 0; c < columns; ++c) {  // a missing value changes neither
            own_low[c] = values[c] < own_low[c] ? values[c] : own_low[c];
            own_high[c] = values[c] > own_high[c] ? values[c] : own_high[c];
        }
    }
    for (std::size_t i = 0; i < n_leaves * columns; ++i)
        if (low[i] > high[i]) low[i] = high[i] = none;
}

AXIL_INSTANTIATE(ranges)

}  // namespace axil
