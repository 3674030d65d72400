// Loops in which every row needs the rows before it: numbers of keys in the order they are met, encodings by the rows before that
// have the same number, and exchanges one after the other.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "instruction_sets.hpp"
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

constexpr std::size_t ROWS = 1024;  // whose sums and counts are in the first cache while they are encoded

template <int>
AXIL_INLINE void encode_lanes(const float* AXIL_RESTRICT sums, const float* AXIL_RESTRICT counts, std::size_t rows,
                              const float* scale, std::uint8_t* AXIL_RESTRICT bins) {
    const float prior = scale[0], left = scale[1], norm = scale[2], n_bins = scale[3];
    for (std::size_t i = 0; i < rows; ++i)
        bins[i] = static_cast<std::uint8_t>(
            static_cast<std::int32_t>(((sums[i] + prior) / (counts[i] + 1.0f) - left) / norm * n_bins));
}

AXIL_VERSIONS(encode,
              (const float* sums, const float* counts, std::size_t rows, const float* scale, std::uint8_t* bins),
              (sums, counts, rows, scale, bins))

}  // namespace

template <class Value>
void encodings_before(const std::uint32_t* numbers, std::size_t count, const Value* values, std::size_t rows,
                      const float* scales, std::size_t encodings, std::uint8_t* bins) {
    struct Met {
        std::conditional_t<std::is_integral_v<Value>, std::uint32_t, float> sum;
        std::uint32_t n;
    };
    std::vector<Met> met(count);
    float sums[ROWS], counts[ROWS];
    for (std::size_t first = 0; first < rows; first += ROWS) {
        const std::size_t size = std::min(ROWS, rows - first);
        for (std::size_t i = 0; i < size; ++i) {
            Met& own = met[numbers[first + i]];
            sums[i] = static_cast<float>(own.sum);
            counts[i] = static_cast<float>(own.n);
            own.sum += values[first + i];
            ++own.n;
        }
        for (std::size_t e = 0; e < encodings; ++e) encode(sums, counts, size, scales + 4 * e, bins + e * rows + first);
    }
}

template void encodings_before(const std::uint32_t*, std::size_t, const std::uint8_t*, std::size_t, const float*,
                               std::size_t, std::uint8_t*);
template void encodings_before(const std::uint32_t*, std::size_t, const float*, std::size_t, const float*, std::size_t,
                               std::uint8_t*);

void exchange(const std::int64_t* partners, std::size_t rows, std::int64_t* order) {
    for (std::size_t i = 0; i < rows; ++i) std::swap(order[i], order[partners[i]]);
}

}  // namespace axil
