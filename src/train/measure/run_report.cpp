// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/run_report.hpp"

#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/explain.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

double mib(int64_t bytes) {
    return static_cast<double>(bytes) / (1 << 20);
}

double share(int64_t part, int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Prints as "nan", never as "-nan".
double without_sign_of_nan(double value) {
    return std::isnan(value) ? std::abs(value) : value;
}

/// Predicted peak of the process, or of the rank on a GPU, whose first rank is `first`.
int64_t predicted_bytes(const RunReport& report, int first) {
    int64_t bytes = report.ranks[static_cast<size_t>(first)].start_bytes;
    for (const RankReport& r : report.ranks) {
        if (r.memory_of == first) bytes += r.predicted_peak_bytes() - r.start_bytes;
    }
    return bytes;
}

/// Predicted over measured, minus 1.
double memory_error_of(const RunReport& report, int first) {
    return share(predicted_bytes(report, first),
                 report.ranks[static_cast<size_t>(first)].measured_peak_bytes) -
           1;
}

int sharers(const RunReport& report, int first) {
    return static_cast<int>(
        std::count_if(report.ranks.begin(), report.ranks.end(),
                      [first](const RankReport& r) { return r.memory_of == first; }));
}

/// Time during which passes and local actions ran: their CPU time on a host; on a GPU, where they
/// overlap, the union of their spans.
int64_t busy_ns(const Timeline& timeline) {
    int64_t cpu = 0;
    std::vector<std::pair<int64_t, int64_t>> times;
    for (const Span& span : timeline.spans) {
        if (span.lane != Lane::compute && span.lane != Lane::local) continue;
        cpu += span.cpu_ns;
        times.emplace_back(span.begin_ns, span.end_ns);
    }
    std::sort(times.begin(), times.end());
    int64_t covered = 0;
    int64_t until = INT64_MIN;
    for (const auto& [begin, end] : times) {
        if (end <= until) continue;
        covered += end - std::max(begin, until);
        until = end;
    }
    return std::min(cpu, covered);
}

}  // namespace

void RankUsage::add_step(const Timeline& timeline, int64_t duration_ns) {
    if (++steps_ == 2) {  // the first step no longer counts
        busy_ns_ = wall_ns_ = span_ns_ = 0;
        durations_.clear();
    }
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;
    for (const Span& span : timeline.spans) {
        if (span.lane != Lane::compute && span.lane != Lane::local) continue;
        first = std::min(first, span.begin_ns);
        last = std::max(last, span.end_ns);
    }
    busy_ns_ += busy_ns(timeline);
    if (last > first) span_ns_ += last - first;
    wall_ns_ += duration_ns;
    durations_.push_back(duration_ns);
}

double RankUsage::busy_share() const {
    return share(busy_ns_, wall_ns_);
}

double RankUsage::bubble() const {
    return span_ns_ == 0 ? 0 : 1 - share(busy_ns_, span_ns_);
}

int64_t RankUsage::median_step_ns() const {
    if (durations_.empty()) return 0;
    std::vector<int64_t> sorted = durations_;
    std::nth_element(sorted.begin(),
                     sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    return sorted[sorted.size() / 2];
}

int64_t RankReport::predicted_peak_bytes() const {
    return arena_bytes + persistent_bytes + snapshot_bytes + start_bytes + kernel_bytes;
}

double RunReport::tokens_per_second() const {
    const int64_t step = ranks.empty() ? 0 : ranks.front().median_step_ns;
    return step == 0 ? 0 : static_cast<double>(tokens_per_step) * 1e9 / static_cast<double>(step);
}

double RunReport::simulated_tokens_per_second() const {
    return simulated_step_ns == 0 ? 0
                                  : static_cast<double>(tokens_per_step) * 1e9 /
                                        static_cast<double>(simulated_step_ns);
}

double RunReport::bubble() const {
    double sum = 0;
    for (const RankReport& rank : ranks) sum += rank.bubble;
    return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

double RunReport::step_error() const {
    return measured_step_ns == 0 ? 0 : share(predicted_step_ns, measured_step_ns) - 1;
}

double RunReport::replay_error() const {
    return executed_ns == 0 ? 0 : share(replayed_ns, executed_ns) - 1;
}

bool RunReport::memory_measured() const {
    return std::any_of(ranks.begin(), ranks.end(),
                       [](const RankReport& rank) { return rank.measured_peak_bytes > 0; });
}

double RunReport::memory_error() const {
    double worst = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto first = static_cast<int>(rank);
        if (ranks[rank].memory_of != first || ranks[rank].measured_peak_bytes == 0) continue;
        const double error = memory_error_of(*this, first);
        if (std::abs(error) > std::abs(worst)) worst = error;
    }
    return worst;
}

std::vector<RankReport> gather_rank_reports(Communicator& communicator, const RankReport& mine) {
    std::vector<RankReport> all;
    for (const auto& part : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
        RankReport report;
        std::memcpy(&report, part.data(), sizeof report);
        all.push_back(report);
    }
    return all;
}

void print_report(const RunReport& report) {
    const auto tenths = [](double value) { return format("%.1f", value); };
    TextTable table;
    table.row({"rank", "busy", "bubble", "live peak", "arena", "persistent", "predicted",
               "measured", "error"});
    table.row({"", "%", "%", "MiB", "MiB", "MiB", "MiB", "MiB", "%"});
    for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
        const RankReport& r = report.ranks[rank];
        table.row({std::to_string(rank), tenths(100 * r.busy_share), tenths(100 * r.bubble),
                   tenths(mib(r.live_peak_bytes)), tenths(mib(r.arena_bytes)),
                   tenths(mib(r.persistent_bytes))});
        const bool alone = !report.one_process && sharers(report, r.memory_of) < 2;
        const bool measured = alone && r.measured_peak_bytes > 0;
        table.cell(alone ? tenths(mib(r.predicted_peak_bytes())) : "-");
        table.cell(measured ? tenths(mib(r.measured_peak_bytes)) : "-");
        table.cell(measured ? format("%+.1f", 100 * memory_error_of(report, static_cast<int>(rank)))
                            : "-");
    }
    std::printf("\n%s", table.text().c_str());
    for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
        const auto first = static_cast<int>(rank);
        if (report.ranks[rank].memory_of != first) continue;
        if (!report.one_process && sharers(report, first) < 2) continue;
        const int64_t measured = report.ranks[rank].measured_peak_bytes;
        std::printf("%s of %s ranks: predicted %.1f MiB, %s\n",
                    report.one_process ? "process" : report.devices[rank].c_str(),
                    report.one_process ? "all" : std::to_string(sharers(report, first)).c_str(),
                    mib(predicted_bytes(report, first)),
                    measured > 0 ? format("measured %.1f MiB", mib(measured)).c_str()
                                 : "not measured, because /proc does not say it");
    }
    std::printf("tokens/s %.1f | loss %.4f -> %.4f | bubble %.1f %%\n", report.tokens_per_second(),
                without_sign_of_nan(report.first_loss), without_sign_of_nan(report.last_loss),
                100 * report.bubble());
    std::printf("one core per rank (simulated): tokens/s %.1f | bubble %.1f %%\n",
                report.simulated_tokens_per_second(), 100 * report.simulated_bubble);
    if (report.measured_step_ns == 0) return;
    const auto say = [](const std::string& text) {
        std::printf("%s\n", wrap_text(text, 2).c_str());
    };
    const auto ms = [](int64_t ns) { return static_cast<double>(ns) * 1e-6; };
    say(format("prediction: step %.1f ms simulated from measured passes (%.2f ms of it outside the "
               "program), %.1f ms measured (median), error %+.1f %%",
               ms(report.predicted_step_ns), ms(report.fixed_step_ns), ms(report.measured_step_ns),
               100 * report.step_error()) +
        (report.memory_measured() ? format(" | memory error %+.1f %%", 100 * report.memory_error())
                                  : " | memory not measured"));
    if (report.shared_cores > 0) {
        say(
            format("%d ranks share %d core%s: passes take longer while other ranks compute, which "
                   "the prediction does not include",
                   report.ranks_sharing, report.shared_cores, report.shared_cores == 1 ? "" : "s"));
    }
    if (const std::string shared = shared_cores_text(report.pass_time_over_cpu); !shared.empty()) {
        say(shared + "; the simulated figures have a core for each rank");
    }
    say(
        format("last step: %.1f ms simulated with the measured length of every pass, %.1f ms "
               "executed, error %+.1f %%",
               ms(report.replayed_ns), ms(report.executed_ns), 100 * report.replay_error()));
}

void write_report(const std::string& path, const RunReport& report) {
    nlohmann::json ranks = nlohmann::json::array();
    for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
        const RankReport& r = report.ranks[rank];
        ranks.push_back({{"device", report.devices[rank]},
                         {"busy_share", r.busy_share},
                         {"bubble", r.bubble},
                         {"live_peak_bytes", r.live_peak_bytes},
                         {"arena_bytes", r.arena_bytes},
                         {"persistent_bytes", r.persistent_bytes},
                         {"snapshot_bytes", r.snapshot_bytes},
                         {"predicted_peak_bytes", predicted_bytes(report, r.memory_of)},
                         {"measured_peak_bytes",
                          report.ranks[static_cast<size_t>(r.memory_of)].measured_peak_bytes}});
    }
    const nlohmann::json all{
        {"schedule", report.schedule},
        {"vocab_mode", report.vocab_mode},
        {"tokens_per_second", report.tokens_per_second()},
        {"pass_time_over_cpu", report.pass_time_over_cpu},
        {"first_loss", report.first_loss},
        {"last_loss", report.last_loss},
        {"bubble", report.bubble()},
        {"simulated_tokens_per_second", report.simulated_tokens_per_second()},
        {"simulated_bubble", report.simulated_bubble},
        {"predicted_step_seconds", static_cast<double>(report.predicted_step_ns) * 1e-9},
        {"measured_step_seconds", static_cast<double>(report.measured_step_ns) * 1e-9},
        {"fixed_step_seconds", static_cast<double>(report.fixed_step_ns) * 1e-9},
        {"shared_cores", report.shared_cores},
        {"step_error", report.step_error()},
        {"replay_error", report.replay_error()},
        {"memory_error",
         report.memory_measured() ? nlohmann::json(report.memory_error()) : nlohmann::json()},
        {"ranks", ranks}};
    OutputFile file(path);
    const std::string text = json_text(all, 2) + "\n";
    file.write(text);
    file.publish();
}

}  // namespace vocabpipe
