// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/rope.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// One rotary_table() for every kind of rotary positions among a model's layers, in a device's
/// memory.
class RotaryTables {
public:
    /// The tables have a row for each of a context rank's tokens of a sequence. The device must
    /// outlive it.
    RotaryTables(Device& device, const ModelConfig& config, const ContextCut& cut,
                 const std::string& owner);
    /// Bytes of all tables of a model on one of `context` context ranks.
    [[nodiscard]] static int64_t bytes(const ModelConfig& config, int context = 1);

    /// (tokens - first, rotary_size) fp32, from token `first` of those that the rank has of a
    /// sequence; `rope` must be that of a layer of the model.
    [[nodiscard]] ConstTensor of(const Rope& rope, int64_t first = 0) const {
        const ConstTensor all = std::ranges::find(tables_, rope, &Table::rope)->values;
        return all.row_range(first, all.rows - first);
    }

private:
    struct Table {
        Rope rope;
        DeviceMemory memory;
        ConstTensor values;
    };
    std::vector<Table> tables_;
};

}  // namespace vocabpipe
