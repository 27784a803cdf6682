// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/metrics_file.hpp"

#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace vocabpipe {

namespace {

constexpr const char* kMetricsFlag = "--metrics";

/// JSON has neither NaN nor infinity: null.
nlohmann::json json_number(double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

MetricsFile::MetricsFile(std::string path, int64_t last_step) : path_(std::move(path)) {
    std::error_code ignored;
    const bool goes_on = last_step > 0 && std::filesystem::is_regular_file(path_, ignored);
    if (goes_on) {
        // No other process may write it while it is replaced.
        { const AppendFile probe(kMetricsFlag, path_, AppendFile::Mode::go_on); }
        keep_through(last_step);
    }
    file_.emplace(kMetricsFlag, path_,
                  goes_on ? AppendFile::Mode::go_on : AppendFile::Mode::begin_anew);
}

void MetricsFile::keep_through(int64_t last_step) {
    std::ifstream in(path_, std::ios::binary);
    if (!in) throw_append_error(kMetricsFlag, path_, "read", errno);
    std::string kept;
    bool changed = false;
    for (std::string line; std::getline(in, line);) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        const auto step = json.is_object() ? json.find("step") : json.end();
        const bool later = json.is_object() && step != json.end() && step->is_number_integer() &&
                           step->get<int64_t>() > last_step;
        const bool cut = in.eof() && !json.is_object();  // whole lines end with a break
        if (!later && !cut) kept += line + "\n";
        changed = changed || later || in.eof();
    }
    if (in.bad()) throw_append_error(kMetricsFlag, path_, "read", errno);
    if (!changed) return;
    OutputFile file(path_);
    file.write(kept);
    file.publish();
}

void MetricsFile::add(const StepMetrics& metrics) {
    nlohmann::json line{{"step", metrics.step},
                        {"loss", json_number(metrics.loss)},
                        {"grad_norm", json_number(metrics.grad_norm)},
                        {"lr", metrics.lr},
                        {"tokens_per_second", metrics.tokens_per_second},
                        {"step_seconds", metrics.step_seconds},
                        {"updated", metrics.updated},
                        {"global_batch_size", metrics.global_batch_size},
                        {"consumed_samples", metrics.consumed_samples},
                        {"consumed_tokens", metrics.consumed_tokens},
                        {"skipped_steps", metrics.skipped_steps},
                        {"elapsed_seconds", metrics.elapsed_seconds}};
    for (size_t depth = 0; depth < metrics.depth_losses.size(); ++depth) {
        line["mtp_" + std::to_string(depth + 1) + "_loss"] =
            json_number(metrics.depth_losses[depth]);
    }
    if (metrics.pairs) {
        line["rewards/accuracies"] = metrics.pairs->accuracy;
        line["rewards/chosen"] = json_number(metrics.pairs->chosen_reward);
        line["rewards/rejected"] = json_number(metrics.pairs->rejected_reward);
        line["rewards/margins"] = json_number(metrics.pairs->margin());
    }
    if (metrics.routers) {
        line["moe_aux_loss"] = json_number(metrics.routers->aux_loss);
        line["moe_z_loss"] = json_number(metrics.routers->z_loss);
        line["moe_max_load"] = json_number(metrics.routers->max_load);
    }
    file_->add(line.dump() + "\n");
}

void MetricsFile::add(const EvaluationMetrics& metrics) {
    nlohmann::json line{{"step", metrics.step}, {"eval_seconds", metrics.eval_seconds}};
    const auto put = [&line](const char* key, const std::optional<double>& value) {
        if (value) line[key] = json_number(*value);
    };
    put("eval_loss", metrics.eval_loss);
    put("eval_ppl", metrics.eval_ppl);
    put("choice_accuracy", metrics.choice_accuracy);
    file_->add(line.dump() + "\n");
}

void MetricsFile::close() {
    file_->close();
}

}  // namespace vocabpipe
