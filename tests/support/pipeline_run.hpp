// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/single_rank_oracle.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace vocabpipe::testing {

struct PipelineOptions {
    TableCosts costs;  ///< empty: forward 1000, backward 2000, vocabulary passes 500
    int steps = 1;     ///< same batch again; gradients must come out the same
    int64_t latency_ns = 10;
    Reductions reductions = Reductions::ordered;
    int receive_ahead = 1;  ///< LowerOptions::receive_ahead
    int pieces = 1;         ///< LowerOptions::pieces
    bool poison = true;     ///< memory of dead buffers becomes NaN
    /// Device of a rank, made on its thread; empty: the host.
    std::function<std::unique_ptr<Device>(int rank)> make_device;
};

/// Lowers `schedule` and runs it on the ranks of `world`, every rank a part of the model; returns
/// whole gradients, assembled from all ranks, on every rank (of this process: of the last one to
/// finish).
[[nodiscard]] Gradients run_pipeline(World& world, const ModelConfig& config,
                                     const ModelPartition& partition, const Schedule& schedule,
                                     const Batch& batch, uint64_t seed,
                                     const PipelineOptions& options = {});

/// Empty if equal bit for bit, else the first difference.
[[nodiscard]] std::string first_difference(const Gradients& expected, const Gradients& actual);

/// An even partition of the model over the schedule's stages.
[[nodiscard]] ModelPartition even_partition(const ModelConfig& config, const Schedule& schedule,
                                            int64_t micro_batch_size);

}  // namespace vocabpipe::testing
