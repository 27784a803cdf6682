// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/plan_request.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/profile.hpp"

namespace vocabpipe::bindings {

namespace {

template <typename Value>
void set(std::vector<Value>& list, const std::vector<Value>& given) {
    if (!given.empty()) list = given;
}

}  // namespace

PlanOptions options_of(const PlanRequest& request) {
    PlanOptions options;
    if (!request.profile.empty()) {
        use_profile(options, read_profile(request.profile));
    } else {
        if (request.model.empty() || request.gpu.empty()) {
            throw UsageError(std::string(request.model.empty() ? "model" : "gpu") +
                             ": is required; give model, gpu and seq_length, or profile");
        }
        options.model = load_model(request.model);
        options.device = load_device(request.gpu);
        options.seq_length = request.seq_length;
    }
    options.gpus = request.gpus;
    options.global_batch_size = request.global_batch_size;
    if (request.vocab_size) options.model.config.vocab_size = *request.vocab_size;
    if (request.memory_gib) options.memory_gib = *request.memory_gib;
    options.moe_imbalance = request.moe_imbalance;
    options.best = request.best;
    options.overlap_pairs = request.overlap_pairs;
    if (request.all_sizes) list_all_sizes(options);
    set(options.tensor, request.tensor);
    set(options.context, request.context);
    set(options.pipeline, request.pipeline);
    set(options.data, request.data);
    set(options.expert, request.expert);
    set(options.expert_tensor, request.expert_tensor);
    set(options.micro_batch_sizes, request.micro_batch_size);
    set(options.chunks, request.chunks);
    set(options.schedules, request.schedules);
    if (!request.recompute.empty()) options.recompute.clear();
    for (const std::string& name : request.recompute) {
        options.recompute.push_back(recompute_from(name));
    }
    for (const std::string& name : request.vocab_modes) {
        options.vocab_modes.push_back(vocab_mode_from(name));
    }
    return options;
}

const PlanRow& row_of(const Plan& plan, int64_t row) {
    if (row >= 0 && row < std::ssize(plan.rows)) return plan.rows[static_cast<size_t>(row)];
    throw UsageError("row " + std::to_string(row) + ": the plan has " +
                     std::to_string(plan.rows.size()) + " rows, from 0 on");
}

}  // namespace vocabpipe::bindings
