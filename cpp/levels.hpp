// Levels of blocks: which leaves occur in them. Blocks of a level are made of `branches` blocks of the level below.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "blocks.hpp"
#include "instruction_sets.hpp"

namespace axil {
namespace blocking {

// The leaves that occur in each block of a level, as entries of a table, with the parts of the block that they occur in.
// A block's list: how many leaves of a tree, in how many trees, then those leaves tree by tree; and so on, up to a zero. Trees
// with as many leaves stand together, so that loops over leaves are of predictable lengths.
struct Level {
    std::vector<std::uint32_t> data;
    std::vector<std::size_t> starts;  // (blocks + 1,)

    std::size_t blocks() const { return starts.size() - 1; }
    std::size_t length(std::size_t block) const { return starts[block + 1] - starts[block]; }
    const std::uint32_t* of(std::size_t block) const { return data.data() + starts[block]; }
};

constexpr std::size_t most_entries = std::size_t(1) << (32 - branches);  // that a number has room for besides the parts

constexpr std::uint32_t met(std::size_t entry, std::size_t parts) {
    return static_cast<std::uint32_t>(entry << branches | parts);
}
AXIL_INLINE std::size_t entry_of(std::uint32_t met) { return met >> branches; }
AXIL_INLINE std::size_t parts_of(std::uint32_t met) { return met & ((1u << branches) - 1); }

// Collects the list of one block after the other.
class Collector {
public:
    Collector(const std::vector<std::int64_t>& starts, std::vector<std::uint32_t>& out)
        : parts_(static_cast<std::size_t>(starts.back())), found_(starts.size() - 1), out_(out) {}

    void add(std::size_t tree, std::size_t entry, std::size_t part) {
        if (!parts_[entry]) found_[tree].push_back(static_cast<std::uint32_t>(entry));
        parts_[entry] = static_cast<std::uint8_t>(parts_[entry] | 1u << part);
    }

    void end() {
        by_count_.clear();
        for (std::size_t t = 0; t < found_.size(); ++t) by_count_.push_back({found_[t].size(), t});
        std::sort(by_count_.begin(), by_count_.end());
        for (std::size_t i = 0; i < by_count_.size();) {
            std::size_t last = i;
            while (last < by_count_.size() && by_count_[last].first == by_count_[i].first) ++last;
            out_.push_back(static_cast<std::uint32_t>(by_count_[i].first));
            out_.push_back(static_cast<std::uint32_t>(last - i));
            for (; i < last; ++i)
                for (const std::uint32_t entry : found_[by_count_[i].second]) out_.push_back(met(entry, parts_[entry]));
        }
        out_.push_back(0);
        for (auto& entries : found_) {
            for (const std::uint32_t entry : entries) parts_[entry] = 0;
            entries.clear();
        }
    }

private:
    std::vector<std::uint8_t> parts_;                // (entries,) bits
    std::vector<std::vector<std::uint32_t>> found_;  // by tree
    std::vector<std::pair<std::size_t, std::size_t>> by_count_;
    std::vector<std::uint32_t>& out_;
};

// A level from what adds the leaves of one of its blocks. Of more than `most` numbers nothing is made.
template <class Add>
bool make_level(std::size_t blocks, const std::vector<std::int64_t>& starts, std::size_t most, Level& level,
                const Crew& crew, const Add& add) {
    const Chunks chunks(blocks, 64, 256);
    std::vector<std::vector<std::uint32_t>> parts(chunks.count());
    level.starts.assign(blocks + 1, 0);
    parallel(crew, chunks.count(), [&](std::size_t i, std::size_t) {
        Collector collector(starts, parts[i]);
        for (std::size_t block = chunks.begin(i); block < chunks.end(i); ++block) {
            const std::size_t before = parts[i].size();
            if (before > most) return;
            add(block, collector);
            collector.end();
            level.starts[block + 1] = parts[i].size() - before;
        }
    });
    for (std::size_t block = 0; block < blocks; ++block) level.starts[block + 1] += level.starts[block];
    std::size_t size = 0;
    for (const auto& part : parts) size += part.size();
    if (size > most) return false;
    level.data.reserve(size);
    for (auto& part : parts) {
        level.data.insert(level.data.end(), part.begin(), part.end());
        std::vector<std::uint32_t>().swap(part);
    }
    return true;
}

}  // namespace blocking
}  // namespace axil
