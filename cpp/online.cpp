// Loops in which every row needs the rows before it: numbers of keys in the order they are met, sums and counts of the rows
// before that have the same number, and exchanges one after the other.
#include <utility>
#include <vector>

#include "kernels.hpp"

namespace axil {

std::size_t number_keys(const std::uint64_t* keys, std::size_t rows, std::int64_t* numbers) {
    std::size_t bits = 4;
    while ((std::size_t(1) << bits) < 2 * rows) ++bits;
    const std::size_t mask = (std::size_t(1) << bits) - 1;
    std::vector<std::uint64_t> known(mask + 1);
    std::vector<std::int64_t> number(mask + 1, -1);
    std::int64_t count = 0;
    for (std::size_t j = 0; j < rows; ++j) {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the key.
        std::size_t place = static_cast<std::size_t>((keys[j] * 0x9e3779b97f4a7c15u) >> (64 - bits));
        while (number[place] >= 0 && known[place] != keys[j]) place = (place + 1) & mask;
        if (number[place] < 0) {
            known[place] = keys[j];
            number[place] = count++;
        }
        numbers[j] = number[place];
    }
    return static_cast<std::size_t>(count);
}

namespace {

template <class Sum>
void add_up_before(const std::int64_t* numbers, std::size_t count, const std::int64_t* order, const float* values,
                   std::size_t rows, float* sums, float* counts) {
    std::vector<std::pair<Sum, std::int64_t>> met(count);
    for (std::size_t i = 0; i < rows; ++i) {
        const auto row = static_cast<std::size_t>(order[i]);
        auto& [sum, n] = met[static_cast<std::size_t>(numbers[row])];
        sums[row] = static_cast<float>(sum);
        counts[row] = static_cast<float>(n);
        sum += values[row];
        ++n;
    }
}

}  // namespace

void sums_before(const std::int64_t* numbers, std::size_t count, const std::int64_t* order, const float* values,
                 std::size_t rows, bool single, float* sums, float* counts) {
    if (single)
        add_up_before<float>(numbers, count, order, values, rows, sums, counts);
    else
        add_up_before<double>(numbers, count, order, values, rows, sums, counts);
}

void exchange(const std::int64_t* partners, std::size_t rows, std::int64_t* order) {
    for (std::size_t i = 0; i < rows; ++i) std::swap(order[i], order[partners[i]]);
}

}  // namespace axil
