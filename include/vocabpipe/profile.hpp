// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/memory_over_time.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The model and split that were measured. Costs and sizes hold only for these; to scale them to
/// another split, divide by these numbers.
struct ProfiledModel {
    int layers = 0;                     ///< transformer layers
    int64_t hidden = 0;                 ///< h
    int64_t ffn_hidden = 0;             ///< f
    int64_t heads = 0;                  ///< heads of queries
    int64_t seq_length = 0;             ///< tokens per sequence
    int64_t micro_batch_size = 0;       ///< sequences per microbatch
    int64_t vocab = 0;                  ///< rows, unpadded
    std::vector<int> layers_per_stage;  ///< [global stage]
    /// Member by member.
    friend bool operator==(const ProfiledModel&, const ProfiledModel&) = default;
};

/// One measured transfer.
struct LinkSample {
    Do what = Do::send;  ///< send, broadcast, all_gather, all_to_all or gather
    int ranks = 2;       ///< participants
    int64_t bytes = 0;   ///< what the busiest participant sends
    int64_t ns = 0;      ///< from the moment all are ready to the moment all are done
    /// Member by member.
    friend bool operator==(const LinkSample&, const LinkSample&) = default;
};

/// Measured times of the passes and the communication of one model on one machine: `vocabpipe
/// profile` and `train_gpt --profile` write it; plan, simulate and the generators read it.
struct Profile {
    std::string host;     ///< where it was measured
    std::string device;   ///< processor or GPU, and threads per rank
    std::string date;     ///< as the caller gives it; empty: not recorded
    std::string command;  ///< command line that measured it

    ProfiledModel model;                ///< what was measured
    std::vector<int> rank_of_stage;     ///< [stage]
    ShardMap input;                     ///< rows whose E and G were measured
    ShardMap output;                    ///< rows whose S and T were measured
    Barriers barriers = Barriers::one;  ///< decides which work S and T contain

    TableCosts costs;  ///< F, B, I, W, R (0: not measured) of every stage; E, G, S, T, Reduce,
                       ///< Report, Update of every rank (0 on empty shards)
    std::vector<Op> derived;  ///< costs of these were not measured: B = I + W, or I = W = B / 2
    /// Sizes of the measured run as one replica: with t, but without buckets.
    StepSizes sizes;
    std::vector<PersistentBytes> persistent;  ///< [pipeline rank], of the first tensor rank
    std::vector<LinkSample> links;            ///< latency and rates of `costs` are fitted to these
    int cores = 0;  ///< cores that all ranks share in simulation; 0: one or more for each

    /// p, ranks of the pipeline.
    [[nodiscard]] int ranks() const { return static_cast<int>(costs.rank_ns.size()); }
    /// Stages of the pipeline.
    [[nodiscard]] int stages() const { return static_cast<int>(costs.stage_ns.size()); }
};

/// What R made again when the profile was measured, deduced from its sizes.
[[nodiscard]] Recompute recomputed_in(const Profile& profile);

/// Time of R per layer, mean over all layers: measured, if the profile has this granularity; else
/// that of F, or for selective the time to read and write `selective_elements` per token at the
/// rate of combine_softmax and ordered_sum, if that rate was measured and gives less. 0 for none.
[[nodiscard]] double recompute_ns_per_layer(const Profile& profile, Recompute recompute,
                                            double selective_elements);

/// Reads a profile file (JSON, version 1). Throws InputFileError naming the file, the line or the
/// key, and the remedy: for text that is not JSON, for keys that are unknown, missing or given
/// twice, for costs and sizes that are negative or beyond 2^40 ns and 2^50 bytes, and for lists
/// whose lengths do not fit together.
[[nodiscard]] Profile read_profile(const std::string& path);

/// The same from text in memory; `name` stands for the file in messages.
[[nodiscard]] Profile parse_profile(std::string_view text, const std::string& name);

/// Writes `profile` so that read_profile() returns the same. The file appears only when complete.
/// Throws OutputFileError.
void write_profile(const std::string& path, const Profile& profile);

}  // namespace vocabpipe
