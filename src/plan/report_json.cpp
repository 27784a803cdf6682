// SPDX-License-Identifier: Apache-2.0
#include "src/model/router_sums.hpp"
#include "src/support/json_text.hpp"
#include "vocabpipe/parameter_count.hpp"
#include "vocabpipe/plan.hpp"

#include <nlohmann/json.hpp>

#include <optional>

namespace vocabpipe {

namespace {

using json = nlohmann::ordered_json;

json model_json(const PlanOptions& options) {
    const ModelConfig& config = options.model.config;
    json result{{"name", options.model.name},
                {"parameters", parameter_count(config)},
                {"trained_parameters", trained_parameter_count(options)},
                {"num_layers", config.num_layers},
                {"mtp_num_layers", config.mtp_num_layers},
                {"hidden_size", config.hidden_size},
                {"ffn_hidden_size", config.ffn_hidden_size},
                {"num_attention_heads", config.num_attention_heads},
                {"num_key_value_heads", config.kv_heads()},
                {"head_size", config.head_size()},
                {"vocab_size", config.vocab_size},
                {"tied", config.tied}};
    const MoeConfig& moe = config.moe;
    if (moe.experts > 0) {
        result["active_parameters"] = active_parameter_count(config);
        result["num_experts"] = moe.experts;
        result["experts_per_token"] = moe.top_k;
        result["expert_ffn_hidden_size"] = config.expert_ffn_hidden_size();
        result["shared_expert_ffn_hidden_size"] =
            moe.shared_expert ? config.shared_ffn_hidden_size() : 0;
        result["layers_with_experts"] = routed_layers(config).size();
    }
    return result;
}

json device_json(const DeviceSpec& device) {
    json result{{"name", device.name}};
    for (const DeviceFigure& entry : device_figures()) {
        const Figure& figure = device.*entry.figure;
        result[std::string(entry.key)] = {
            {"value", figure.value}, {"basis", to_string(figure.basis)}, {"source", figure.source}};
    }
    return result;
}

json profile_json(const Profile& profile) {
    return {{"host", profile.host}, {"device", profile.device}, {"date", profile.date}};
}

json memory_json(const PlannedMemory& memory) {
    json result{{"rank", memory.rank}};
    for (const MemoryPurpose& purpose : memory_purposes()) {
        result[std::string(purpose.name) + "_bytes"] = memory.*purpose.bytes;
    }
    result["total_bytes"] = memory.total();
    return result;
}

/// The values of a candidate that all its schedules share.
json candidate_json(const Candidate& candidate) {
    const Mesh& mesh = candidate.mesh;
    json result = json::object();
    if (!candidate.schedule.empty()) {
        result = {{"schedule", candidate.schedule},
                  {"vocab_mode", to_string(candidate.vocab_mode)},
                  {"split", to_string(candidate.split)},
                  {"chunks", candidate.chunks},
                  {"memory_limit", candidate.memory_limit},
                  {"overlap_pairs", candidate.overlap_pairs},
                  {"layers_per_stage", candidate.layers_per_stage}};
    }
    result.update({{"pipeline", mesh.pipeline},
                   {"tensor", mesh.tensor},
                   {"context", mesh.context},
                   {"data", mesh.data},
                   {"expert", candidate.expert_groups()},
                   {"expert_tensor", candidate.expert_tensor},
                   {"micro_batch_size", candidate.micro_batch_size},
                   {"microbatches", candidate.microbatches},
                   {"recompute", to_string(candidate.recompute)}});
    if (mesh.context > 1) result["cp_comm_type"] = to_string(candidate.context_form);
    if (candidate.zero.stage > 1) {
        result["reshard_after"] = to_string(candidate.zero.reshard_after);
        result["gather_ahead"] = candidate.zero.gather_ahead;
    }
    return result;
}

/// For every axis with several ranks: whether links are inside a node or between nodes.
json links_json(const PlanOptions& options, const Mesh& mesh) {
    json links = json::object();
    if (options.profile) return links;
    for (const Axis axis :
         {Axis::pipeline, Axis::tensor, Axis::context, Axis::expert, Axis::data}) {
        if ((axis == Axis::pipeline ? mesh.pipeline : mesh.size_of(axis)) == 1) continue;
        links[std::string(to_string(axis))] =
            spans_nodes(options.device, mesh, axis) ? "network" : "link";
    }
    return links;
}

json row_json(const PlanOptions& options, const PlanRow& row) {
    json result = candidate_json(row.candidate);
    result["links"] = links_json(options, row.candidate.mesh);
    result["evaluation"] = to_string(row.evaluation);
    result["step_ns"] = row.step_ns;
    result["tokens_per_second"] = row.tokens_per_second;
    result["mfu"] = row.mfu > 0 ? json(row.mfu) : json(nullptr);
    result["bubble"] = row.bubble;
    result["command"] = train_command(options, row.candidate);
    result["fits"] = row.fits();
    result["tight"] = is_tight(options, row);
    result["spare_bytes"] = row.spare_bytes;
    result["worst_rank"] = memory_json(row.worst);
    result["ranks"] = json::array();
    for (const PlannedMemory& rank : row.ranks) result["ranks"].push_back(memory_json(rank));
    return result;
}

json trainer_json(const PlannedTrainer& trainer) {
    return {{"kernels", to_string(trainer.kernels)},
            {"fp8", trainer.fp8},
            {"grad_dtype", trainer.gradient_type()},
            {"gradient_reduction", to_string(trainer.reduction)},
            {"sequence_parallel", trainer.sequence_parallel},
            {"parallel_loss", trainer.parallel_loss},
            {"overlap_p2p_communication", trainer.overlap_messages},
            {"blocking_exchanges", trainer.blocking_exchanges},
            {"exchange_percent", trainer.exchange_percent},
            {"free_vocabulary_collectives", trainer.free_vocabulary_collectives},
            {"recompute_num_layers", trainer.recompute_layers},
            {"zero_stage", trainer.zero}};
}

json search_json(const PlanSearch& search) {
    return {{"candidates", search.candidates}, {"slower", search.slower},
            {"too_large", search.too_large},   {"timed", search.timed},
            {"simulated", search.simulated},   {"complete", search.complete}};
}

json sensitivity_json(const Sensitivity& s) {
    return {{"figure", s.figure},     {"basis", to_string(s.basis)},
            {"factor", s.factor},     {"step_ns", s.step_ns},
            {"best_row", s.best_row}, {"best_step_ns", s.best_step_ns}};
}

json remedy_json(const Remedy& remedy) {
    const PlanRow& row = remedy.row;
    json result = candidate_json(row.candidate);
    result.update({{"flags", remedy.flags},
                   {"step_ns", row.step_ns},
                   {"fits", row.fits()},
                   {"spare_bytes", row.spare_bytes},
                   {"total_bytes", row.worst.total()}});
    return result;
}

json vocabulary_json(const Plan& plan) {
    const std::optional<VocabularyGain> gain = vocabulary_gain(plan);
    if (!gain) return nullptr;
    return {{"with_row", gain->with},
            {"without_row", gain->without},
            {"step_ratio", gain->step_ratio},
            {"memory_ratio", gain->memory_ratio}};
}

}  // namespace

std::string plan_json(const Plan& plan) {
    const PlanOptions& options = plan.options;
    json result{{"version", 2},
                {"model", model_json(options)},
                {"device", options.profile ? json(nullptr) : device_json(options.device)},
                {"profile", options.profile ? profile_json(*options.profile) : json(nullptr)},
                {"gpus", options.gpus},
                {"memory_gib", options.gpu_memory_gib()},
                {"seq_length", options.seq_length},
                {"global_batch_size", options.global_batch_size},
                {"moe_imbalance", options.moe_imbalance},
                {"trainer", options.profile ? json(nullptr) : trainer_json(options.trainer)},
                {"evaluation", to_string(plan.evaluation)},
                {"search", search_json(plan.search)},
                {"vocabulary", vocabulary_json(plan)},
                {"rows", json::array()},
                {"remedies", json::array()},
                {"sensitivity", json::array()},
                {"imbalance", json::array()},
                {"skipped", json::array()}};
    for (const PlanRow& row : plan.rows) result["rows"].push_back(row_json(options, row));
    for (const Remedy& remedy : plan.remedies) result["remedies"].push_back(remedy_json(remedy));
    for (const LengthPlan& of_row : plan.lengths) {
        json microbatches = json::array();
        for (const LengthCount& one : of_row.microbatches) {
            microbatches.push_back({{"length", one.length}, {"count", one.count}});
        }
        result["lengths"].push_back({{"padded_tokens_per_second", of_row.padded},
                                     {"packed_tokens_per_second", of_row.packed},
                                     {"by_length_tokens_per_second", of_row.by_length},
                                     {"microbatches", std::move(microbatches)}});
    }
    for (const Sensitivity& s : plan.sensitivity) {
        result["sensitivity"].push_back(sensitivity_json(s));
    }
    for (const Sensitivity& s : plan.imbalance) result["imbalance"].push_back(sensitivity_json(s));
    for (const auto& [candidate, reason] : plan.skipped) {
        json entry = candidate_json(candidate);
        entry["reason"] = reason;
        result["skipped"].push_back(std::move(entry));
    }
    return json_text(result, 1) + "\n";
}

}  // namespace vocabpipe
