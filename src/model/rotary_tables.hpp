// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/rope.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// One rotary_table() for every kind of rotary positions among a model's layers, in a device's
/// memory. The table of whole sequences begins with that of shorter ones; of sequences that context
/// ranks cut, every length has a table of its own.
class RotaryTables {
public:
    /// The tables have a row for each of a context rank's tokens of a sequence. `shorter_lengths`:
    /// as in ModelPartition. The device must outlive it.
    RotaryTables(Device& device, const ModelConfig& config, const ContextCut& cut,
                 const std::string& owner, std::span<const int64_t> shorter_lengths = {});
    /// Bytes of all tables of a model on one of `context` context ranks.
    [[nodiscard]] static int64_t bytes(const ModelConfig& config, int context = 1,
                                       std::span<const int64_t> shorter_lengths = {});

    /// (rows, rotary_size) fp32, from token `first` of those that the rank has of a sequence, which
    /// are `length`; at least `length` - `first` rows. `rope` must be that of a layer of the model.
    [[nodiscard]] ConstTensor of(const Rope& rope, int64_t length, int64_t first = 0) const {
        const auto table = std::ranges::find_if(tables_, [&](const Table& one) {
            return one.rope == rope && (!cut_ || one.values.rows == length);
        });
        const ConstTensor all = table->values;
        return all.row_range(first, all.rows - first);
    }

private:
    struct Table {
        Rope rope;
        DeviceMemory memory;
        ConstTensor values;
    };
    /// Adds the tables of a length.
    void add(Device& device, const ModelConfig& config, const ContextCut& cut,
             const std::string& owner);

    bool cut_;  ///< among context ranks
    std::vector<Table> tables_;
};

}  // namespace vocabpipe
