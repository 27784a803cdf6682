// SPDX-License-Identifier: Apache-2.0
// vocabpipe checkpoint inspect: shows the tensors and the training state of a checkpoint.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "src/train/options/train_flags.hpp"

namespace vocabpipe::tool {

namespace {

/// A table whose first column takes the remaining width. A longer name gets a line of its own.
class NamedRows {
public:
    void row(const std::string& name, const std::vector<std::string>& others) {
        if (numbers_.empty()) numbers_.row({"type", "shape", "bytes"}, {true, true, false});
        numbers_.row(others);
        names_.push_back(name);
    }
    [[nodiscard]] std::string text() const {
        std::istringstream lines(numbers_.text());
        std::string line;
        std::getline(lines, line);
        size_t width = std::string_view("tensor").size();
        for (const std::string& name : names_) width = std::max(width, name.size());
        const size_t room = kTextWidth - std::min(kTextWidth, line.size() + 2);
        width = std::min(width, std::max(room, std::string_view("tensor").size()));
        std::string text = padded("tensor", width) + line + "\n";
        for (const std::string& name : names_) {
            std::getline(lines, line);
            text += name.size() <= width ? padded(name, width) : name + "\n" + padded("", width);
            text += line + "\n";
        }
        return text;
    }

private:
    static std::string padded(const std::string& name, size_t width) {
        return name + std::string(width - name.size() + 2, ' ');
    }
    std::vector<std::string> names_;
    TextTable numbers_;
};

/// The tensors of some files, one table per file.
class Listing {
public:
    void add(const SafetensorsFile& file, const StoredTensor& tensor) {
        tables_[std::filesystem::path(file.path()).filename().string()].row(
            readable(tensor.name), {std::string(name_of(tensor.type)), shape_text(tensor.shape),
                                    std::to_string(tensor.end - tensor.begin)});
        ++tensors_;
        bytes_ += tensor.end - tensor.begin;
    }
    void print() const {
        for (const auto& [file, table] : tables_) {
            std::printf("\n%s\n%s", readable(file).c_str(), table.text().c_str());
        }
        std::printf("\n%s, %.1f MiB\n", counted(static_cast<int64_t>(tensors_), "tensor").c_str(),
                    static_cast<double>(bytes_) / (1 << 20));
    }

private:
    std::map<std::string, NamedRows> tables_;  // by file
    size_t tensors_ = 0;
    uint64_t bytes_ = 0;
};

/// Shortens "9.9999997473787516e-06", as a float flag is recorded, to 1e-05.
std::string short_number(const std::string& word) {
    double value = 0;
    const char* const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, value);
    constexpr size_t kPlain = 8;  // characters; short enough as it is
    if (word.size() <= kPlain || error != std::errc() || at != end) return word;
    if (word.find_first_of(".e") == std::string::npos) return word;
    std::array<char, 64> text;
    const auto as_float = static_cast<float>(value);
    const auto written = static_cast<double>(as_float) == value
                             ? std::to_chars(text.data(), text.data() + text.size(), as_float)
                             : std::to_chars(text.data(), text.data() + text.size(), value);
    return {text.data(), written.ptr};
}

/// The numbers by which flags say "not given", such as -1 or 0.
std::map<std::string, std::string, std::less<>> numbers_for_not_given() {
    TrainOptions options;
    UnresolvedFlags unresolved;
    std::map<std::string, std::string, std::less<>> numbers;
    for (const FlagGroup& group : train_flags(options, unresolved)) {
        for (const Flag& flag : group.flags) {
            if (!flag.unset.empty()) numbers.emplace(flag.name(), flag.text());
        }
    }
    return numbers;
}

/// Flags in lines; a flag and its value stay together.
std::string flags_text(const std::vector<std::string>& flags, size_t indent) {
    const auto not_given = numbers_for_not_given();
    std::string text;
    size_t column = indent;
    for (const std::string& recorded : flags) {
        std::string flag = readable(recorded);
        const size_t value = flag.rfind(' ') + 1;
        const auto unset = not_given.find(std::string_view(flag).substr(0, flag.find(' ')));
        const bool given = unset == not_given.end() || unset->second != flag.substr(value);
        flag = flag.substr(0, value) + (given ? short_number(flag.substr(value)) : "not given");
        if (text.empty()) {
            text = flag;
        } else if (column + 2 + flag.size() > kTextWidth) {
            text += "\n" + std::string(indent, ' ') + flag;
            column = indent;
        } else {
            text += "  " + flag;
            column += 2;
        }
        column += flag.size();
    }
    return text;
}

void print_state(const std::string& folder) {
    const std::string path = folder + "/" + std::string(kTrainingFile);
    const TrainingState state = parse_training_state(InputFile(path).text(), path);
    std::printf("step              %lld\n", static_cast<long long>(state.step));
    std::printf("consumed samples  %lld\n", static_cast<long long>(state.consumed_samples));
    std::printf("sequence length   %lld\n", static_cast<long long>(state.seq_length));
    std::printf("seed              %llu\n", static_cast<unsigned long long>(state.seed));
    std::printf("type              %s\n", state.dtype.c_str());
    constexpr std::string_view kFlags = "flags             ";
    std::printf("%s%s\n", kFlags.data(), flags_text(state.flags, kFlags.size()).c_str());
}

void inspect(const std::string& path) {
    Listing listing;
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        const SafetensorsFile file(path);
        for (const StoredTensor& t : file.header().tensors) listing.add(file, t);
        for (const auto& [key, value] : file.header().metadata) {
            std::printf("%s\n",
                        wrap_text("metadata " + readable(key) + ": " + readable(value), 4).c_str());
        }
        listing.print();
        return;
    }
    const CheckpointSource source = find_checkpoint(path, false);
    std::printf("%s\n", source.folder.c_str());
    if (source.training) print_state(source.folder);
    const TensorFolder weights(source.folder);
    for (const auto& [name, found] : weights.tensors()) listing.add(*found.file, *found.tensor);
    if (source.training) {
        const SafetensorsFile optimizer(source.folder + "/" + std::string(kOptimizerFile));
        for (const StoredTensor& t : optimizer.header().tensors) listing.add(optimizer, t);
    }
    listing.print();
}

}  // namespace

Command checkpoint_inspect_command() {
    const auto path = std::make_shared<std::string>();
    return {.name = "inspect",
            .description =
                "Show the tensors and the training state of a saved step, a Hugging Face folder or "
                "a safetensors file",
            .flags = {{.flags = {{.names = "PATH",
                                  .value = path.get(),
                                  .help = "Folder of saved steps (the newest is used), a saved "
                                          "step, a model or a file"}}}},
            .run = [path](const GivenFlags&) { inspect(*path); }};
}

}  // namespace vocabpipe::tool
