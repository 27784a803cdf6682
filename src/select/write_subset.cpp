// SPDX-License-Identifier: Apache-2.0
#include "src/select/write_subset.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace vocabpipe {

void write_subset(const SelectContext& context, const SelectionState& state,
                  const std::string& path, const SubsetInfo& info) {
    constexpr size_t kBlock = 8192;
    SubsetWriter writer(context.world, path, info, context.blocks.folder);
    int64_t at = sum_of_ranks_before(context.world,
                                     state.count(Decision::selected) + state.count(Decision::open));
    context.agree([&] {
        std::vector<int64_t> block;
        block.reserve(kBlock);
        const auto flush = [&] {
            writer.write(at, block);
            at += std::ssize(block);
            block.clear();
        };
        for (int64_t v = state.first(); v < state.last(); ++v) {
            if (state.is_in(v)) block.push_back(v);
            if (block.size() == kBlock) flush();
        }
        flush();
    });
    writer.publish();
}

}  // namespace vocabpipe
