// SPDX-License-Identifier: Apache-2.0
#include "src/train/metrics_file.hpp"

#include "vocabpipe/error.hpp"

#include <unistd.h>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

/// JSON has no NaN and no infinity: null.
nlohmann::json number(double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

MetricsFile::MetricsFile(std::string path) : path_(std::move(path)) {
    file_.reset(std::fopen(path_.c_str(), "w"));
    if (!file_) fail("create");
    std::setvbuf(file_.get(), nullptr, _IOFBF, 4096);
}

void MetricsFile::add(const StepMetrics& metrics) {
    const nlohmann::json line{{"step", metrics.step},
                              {"loss", number(metrics.loss)},
                              {"grad_norm", number(metrics.grad_norm)},
                              {"lr", metrics.lr},
                              {"tokens_per_second", metrics.tokens_per_second},
                              {"step_seconds", metrics.step_seconds},
                              {"updated", metrics.updated}};
    const std::string text = line.dump() + "\n";
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
