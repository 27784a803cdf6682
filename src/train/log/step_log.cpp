// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/step_log.hpp"

#include "src/support/output_file.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr size_t kStepLineWidth = 120;

}  // namespace

StepLog::StepLog(const TrainOptions& options, int64_t first_step)
    : options_(options), bar_(options.terminal_columns, options.train_iters) {
    if (!options.metrics.empty()) metrics_.emplace(options.metrics, first_step - 1);
    if (options.tensorboard_dir.empty()) return;
    make_directories(options.tensorboard_dir, "--tensorboard-dir");
    events_.emplace(options.tensorboard_dir, first_step);
}

std::string step_line(const StepMetrics& m, int64_t last_step) {
    const auto plain = [](double value) {
        return std::isnan(value) ? std::abs(value) : value;  // "nan", never "-nan"
    };
    std::array<char, 256> text;
    std::snprintf(text.data(), text.size(),
                  " iteration %lld/%lld | lm loss %.6f | grad norm %.3f | lr %.3e | %.1f ms | "
                  "%.0f tokens/s",
                  static_cast<long long>(m.step), static_cast<long long>(last_step), plain(m.loss),
                  plain(m.grad_norm), m.lr, m.step_seconds * 1e3, m.tokens_per_second);
    std::string line = text.data();
    size_t columns = line.size();
    const auto add = [&](const std::string& part) {
        const bool fits = columns + part.size() <= kStepLineWidth;
        const std::string next = (fits ? "" : "\n   ") + part;
        columns = fits ? columns + part.size() : next.size() - 1;
        line += next;
    };
    for (size_t depth = 0; depth < m.depth_losses.size(); ++depth) {
        std::snprintf(text.data(), text.size(), " | mtp_%zu loss %.6f", depth + 1,
                      plain(m.depth_losses[depth]));
        add(text.data());
    }
    if (m.pairs) {
        std::snprintf(text.data(), text.size(), " | rewards/accuracies %.3f | rewards/margins %.4f",
                      m.pairs->accuracy, plain(m.pairs->margin()));
        add(text.data());
    }
    if (!m.updated) add(" | update skipped");
    if (!m.routers) return line;
    std::snprintf(text.data(), text.size(),
                  " | moe aux loss %.4f | moe z loss %.3f | moe max load %.2f",
                  plain(m.routers->aux_loss), plain(m.routers->z_loss), m.routers->max_load);
    add(text.data());
    return line;
}

void StepLog::add(StepMetrics m, bool ends) {
    if (!m.updated) ++skipped_;
    m.skipped_steps = skipped_;
    m.elapsed_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const bool asked = !options_.terminal_columns || options_.log_interval_given;
    if (!asked) interval_ = {};  // the bar shows single steps, and so does the last line then
    ++interval_.steps;
    interval_.seconds += m.step_seconds;
    interval_.tokens += m.tokens_per_second * m.step_seconds;
    if (m.updated) {
        ++interval_.trained;
        interval_.loss += m.loss;
    }
    if (ends || (asked && m.step % options_.log_interval == 0)) {
        bar_.clear();
        print(m);
    }
    if (!ends) bar_.show(m);
    if (metrics_) metrics_->add(m);
    if (events_ && (ends || m.step % options_.tensorboard_log_interval == 0)) {
        // Megatron's names.
        std::vector<ScalarSummary> scalars{
            {"lm loss", static_cast<float>(m.loss)},
            {"learning-rate", static_cast<float>(m.lr)},
            {"grad-norm", static_cast<float>(m.grad_norm)},
            {"batch-size", static_cast<float>(m.global_batch_size)},
            {"iteration-time", static_cast<float>(m.step_seconds)},
            {"tokens-per-second", static_cast<float>(m.tokens_per_second)},
            {"consumed-tokens", static_cast<float>(m.consumed_tokens)},
            {"skipped-steps", static_cast<float>(m.skipped_steps)}};
        for (size_t depth = 0; depth < m.depth_losses.size(); ++depth) {
            scalars.push_back({"mtp_" + std::to_string(depth + 1) + " loss",
                               static_cast<float>(m.depth_losses[depth])});
        }
        if (m.pairs) {  // TRL's names
            scalars.push_back({"rewards/accuracies", static_cast<float>(m.pairs->accuracy)});
            scalars.push_back({"rewards/chosen", static_cast<float>(m.pairs->chosen_reward)});
            scalars.push_back({"rewards/rejected", static_cast<float>(m.pairs->rejected_reward)});
            scalars.push_back({"rewards/margins", static_cast<float>(m.pairs->margin())});
        }
        if (m.routers) {
            scalars.push_back({"load_balancing_loss", static_cast<float>(m.routers->aux_loss)});
            scalars.push_back({"z_loss", static_cast<float>(m.routers->z_loss)});
            scalars.push_back({"moe max load", static_cast<float>(m.routers->max_load)});
        }
        events_->add(m.step, scalars);
    }
}

void StepLog::add(const EvaluationMetrics& m) {
    if (metrics_) metrics_->add(m);
    if (!events_) return;
    const auto put = [&](const char* tag, const std::optional<double>& value) {
        if (!value) return;
        const ScalarSummary scalar{tag, static_cast<float>(*value)};
        events_->add(m.step, {&scalar, 1});
    };
    put("lm loss validation", m.eval_loss);  // Megatron's names
    put("lm loss validation ppl", m.eval_ppl);
    put("multiple choice accuracy", m.choice_accuracy);
}

void StepLog::print(const StepMetrics& last) {
    StepMetrics mean = last;
    if (interval_.steps > 1) {  // a single step's numbers need no mean
        mean.step_seconds = interval_.seconds / static_cast<double>(interval_.steps);
        if (interval_.seconds > 0) mean.tokens_per_second = interval_.tokens / interval_.seconds;
        mean.updated = interval_.trained == interval_.steps;
        if (interval_.trained > 0) {
            mean.loss = interval_.loss / static_cast<double>(interval_.trained);
        }
    }
    interval_ = {};
    std::printf("%s\n", step_line(mean, options_.train_iters).c_str());
    std::fflush(stdout);
}

void StepLog::close() {
    bar_.clear();
    if (metrics_) metrics_->close();
    if (events_) events_->close();
}

}  // namespace vocabpipe
