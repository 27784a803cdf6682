// SPDX-License-Identifier: Apache-2.0
#include "src/train/metrics_file.hpp"

#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <unistd.h>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

/// JSON has no NaN and no infinity: null.
nlohmann::json number(double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

MetricsFile::MetricsFile(std::string path, int64_t last_step) : path_(std::move(path)) {
    std::error_code ignored;
    const bool goes_on = last_step > 0 && std::filesystem::is_regular_file(path_, ignored);
    if (goes_on) keep_through(last_step);
    file_.reset(std::fopen(path_.c_str(), goes_on ? "a" : "w"));
    if (!file_) fail("create");
    std::setvbuf(file_.get(), nullptr, _IOFBF, 4096);
}

void MetricsFile::keep_through(int64_t last_step) {
    std::ifstream in(path_, std::ios::binary);
    if (!in) fail("read");
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
    if (in.bad()) fail("read");
    whole_bytes_ = static_cast<int64_t>(kept.size());
    if (!changed) return;
    OutputFile file(path_);
    file.write(kept);
    file.publish();
}

void MetricsFile::add(const StepMetrics& metrics) {
    const nlohmann::json line{{"step", metrics.step},
                              {"loss", number(metrics.loss)},
                              {"grad_norm", number(metrics.grad_norm)},
                              {"lr", metrics.lr},
                              {"tokens_per_second", metrics.tokens_per_second},
                              {"step_seconds", metrics.step_seconds},
                              {"updated", metrics.updated}};
    write(line.dump() + "\n");
}

void MetricsFile::add(const EvaluationMetrics& metrics) {
    nlohmann::json line{{"step", metrics.step}, {"eval_seconds", metrics.eval_seconds}};
    const auto put = [&line](const char* key, const std::optional<double>& value) {
        if (value) line[key] = number(*value);
    };
    put("eval_loss", metrics.eval_loss);
    put("eval_ppl", metrics.eval_ppl);
    put("choice_accuracy", metrics.choice_accuracy);
    write(line.dump() + "\n");
}

void MetricsFile::write(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
        std::fflush(file_.get()) != 0) {
        fail("write");
    }
    whole_bytes_ += static_cast<int64_t>(text.size());
}

void MetricsFile::close() {
    if (std::fclose(file_.release()) != 0) fail("close");
}

void MetricsFile::fail(const char* doing) {
    const int reason = errno;
    if (file_) {
        // No half line stays behind; what cannot be cut off cannot be helped.
        (void)!ftruncate(fileno(file_.get()), whole_bytes_);
    }
    throw OutputFileError("--metrics " + path_ + ": cannot " + doing + " the file: " +
                          std::strerror(reason) + "; free space or choose another place");
}

}  // namespace vocabpipe
