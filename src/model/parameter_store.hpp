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

/// Bytes that outlive the step: weights; gradients; and, for the optimizer, masters (bf16 only) and
/// two moments. Without training neither gradients nor moments; of frozen parameters only weights.
[[nodiscard]] PersistentBytes persistent_bytes(const ModelConfig& config,
                                               const std::vector<ParameterRows>& rows,
                                               const std::vector<ParameterBucket>& buckets,
                                               bool training);

struct InitialiseOptions {
    bool only_adapters = false;  ///< all else is loaded
};

/// Owns weights, gradients and optimizer state of one rank in one allocation each, so that resident
/// bytes equal the planned bytes.
class ParameterStore {
public:
    /// The device must outlive it.
    ParameterStore(Device& device, const ModelConfig& config,
                   const std::vector<ParameterRows>& rows, std::vector<ParameterBucket> buckets,
                   const std::string& owner, bool training);

    [[nodiscard]] std::vector<Parameter>& parameters() { return parameters_; }
    [[nodiscard]] const std::vector<int>& ids() const { return ids_; }
    /// Whether the parameter shares the weight of one before it.
    [[nodiscard]] bool shares_weight(size_t parameter) const { return shares_[parameter]; }
    /// Memory for the values of a whole weight, which take_values() then reads: in fp32 the weight
    /// itself, the masters, or, where this rank has only a part of these, the gradient; memory
    /// until then, where nothing of it is whole; a frozen weight in its own type.
    [[nodiscard]] Tensor values_of(size_t parameter);
    /// Sets weight and masters from values_of().
    void take_values(Context& ctx, size_t parameter);
    /// Memory of a bucket, which replicas reduce at once.
    [[nodiscard]] RankBucket bucket(size_t index) const;
    /// As StepModule::place_weights() and place_gradients().
    void place_weights(size_t bucket, Bytes whole);
    void place_gradients(size_t bucket, Bytes whole);
    /// Fills the weights from the seed: element (r, c) of a logical tensor depends on seed, id, r
    /// and c only, so the model is the same for every p.
    void initialise(Context& ctx, const ModelConfig& config, uint64_t seed,
                    const InitialiseOptions& options);

private:
    void place(size_t bucket, Bytes whole, Tensor Parameter::*of_parameter);

    std::vector<int> ids_;
    std::vector<bool> shares_, frozen_;
    std::vector<Parameter> parameters_;
    std::vector<ParameterBucket> buckets_;
    Device& device_;
    DeviceMemory biases_, frozen_weights_, weights_, masters_, gradients_, moments_;
    DeviceMemory values_;  ///< from values_of() to take_values()
    std::string owner_;    ///< of the memory, in errors
};

}  // namespace vocabpipe
