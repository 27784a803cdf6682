// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/profile.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// Which rows of a logical parameter a rank holds.
struct ParameterRows {
    int id = 0;
    int64_t first_row = 0;
    int64_t rows = 0;
    /// A tied output weight beside the input weight of the same rank: shares its memory and
    /// moments, has a gradient of its own.
    bool shares_previous_weight = false;
    bool counted_elsewhere = false;
};

/// What outlives the step: weights; gradients; and as the optimizer's, masters (bf16 only) and two
/// moments. Not for training: neither gradients nor moments.
[[nodiscard]] PersistentBytes persistent_bytes(const ModelConfig& config,
                                               const std::vector<ParameterRows>& rows,
                                               bool training);

/// Owns weights, gradients and optimizer state of one rank in one allocation each, so that the
/// planned figure is the resident one.
class ParameterStore {
public:
    /// The device must outlive it.
    ParameterStore(Device& device, const ModelConfig& config,
                   const std::vector<ParameterRows>& rows, const std::string& owner, bool training);

    [[nodiscard]] std::vector<Parameter>& parameters() { return parameters_; }
    [[nodiscard]] const std::vector<int>& ids() const { return ids_; }
    /// Whether the weight is that of a parameter before it.
    [[nodiscard]] bool shares_weight(size_t parameter) const { return shares_[parameter]; }
    /// Fills the weights from the seed: element (r, c) of a logical tensor depends on seed, id, r
    /// and c only, so the model is the same for every p.
    void initialise(Context& ctx, const ModelConfig& config, uint64_t seed);

private:
    std::vector<int> ids_;
    std::vector<bool> shares_;
    std::vector<Parameter> parameters_;
    Device& device_;
    DeviceMemory weights_, masters_, gradients_, moments_;
};

}  // namespace vocabpipe
