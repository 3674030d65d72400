// Sums of rows and bounds of blocks in single precision, in whole vectors.
#pragma once

#include "levels.hpp"

namespace axil {
namespace blocking {

constexpr std::size_t lanes = 16;  // queries whose bounds of the last level are computed together

// Sums of the rows of a block whose leaves are (trees, block_rows).
void read(const std::uint8_t* cells, const std::int64_t* starts, std::size_t trees, const float* entries,
          float constant, float* sums);
void read(const std::uint16_t* cells, const std::int64_t* starts, std::size_t trees, const float* entries,
          float constant, float* sums);
void read(const std::uint32_t* cells, const std::int64_t* starts, std::size_t trees, const float* entries,
          float constant, float* sums);

// (blocks, lanes): the largest size of a sum in each block of a level, for `lanes` queries with entries (leaves, lanes).
void bound_level(const Level& level, const float* entries, const float* constant, float* bounds);

// (branches,): the largest size of a sum in each part of a block with this list, for one query.
void bound_parts(const std::uint32_t* list, const float* entries, float constant, float* bounds);

}  // namespace blocking
}  // namespace axil
