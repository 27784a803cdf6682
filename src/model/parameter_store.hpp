// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/gradient_buckets.hpp"
#include "src/model/parameter_rows.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/profile.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

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
                   const std::vector<ParameterRows>& rows, std::vector<ParameterBucket> buckets,
                   const std::string& owner, bool training);

    [[nodiscard]] std::vector<Parameter>& parameters() { return parameters_; }
    [[nodiscard]] const std::vector<int>& ids() const { return ids_; }
    /// Whether the weight is that of a parameter before it.
    [[nodiscard]] bool shares_weight(size_t parameter) const { return shares_[parameter]; }
    /// Where fp32 values of a whole weight can be put before take_values(): the weight itself, the
    /// masters, or, where this rank has not all of these, the gradient.
    [[nodiscard]] Tensor values_of(size_t parameter) const;
    /// Makes weight and masters of them.
    void take_values(Context& ctx, size_t parameter) const;
    /// Memory of what replicas reduce at once.
    [[nodiscard]] RankBucket bucket(size_t index) const;
    /// Fills the weights from the seed: element (r, c) of a logical tensor depends on seed, id, r
    /// and c only, so the model is the same for every p.
    void initialise(Context& ctx, const ModelConfig& config, uint64_t seed);

private:
    std::vector<int> ids_;
    std::vector<bool> shares_;
    std::vector<Parameter> parameters_;
    std::vector<ParameterBucket> buckets_;
    Device& device_;
    DeviceMemory biases_, weights_, masters_, gradients_, moments_;
};

}  // namespace vocabpipe
