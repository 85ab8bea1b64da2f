#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "factory/LatenessBuckets.h"
#include "workflow/WFTimerStats.h"

namespace workflow {

// Builds a text in the format of Prometheus 0.0.4. Each metric is written once: its head, and then
// its lines.
class PrometheusText {
 public:
  explicit PrometheusText(const std::string& prefix) : prefix_(prefix) {}

  // `labels` is what stands in the braces of each line that follows, such as: store="orders".
  void set_labels(const std::string& labels) { labels_ = labels; }

  void value(const char* name, const char* type, const char* help, const std::string& value) {
    head(name, type, help);
    line(name, {}, value);
  }
  void count(const char* name, const char* help, uint64_t n) {
    value(name, "counter", help, std::to_string(n));
  }
  void gauge(const char* name, const char* help, uint64_t n) {
    value(name, "gauge", help, std::to_string(n));
  }
  void head(const char* name, const char* type, const char* help) {
    text_ += "# HELP " + prefix_ + name + " " + help + "\n";
    text_ += "# TYPE " + prefix_ + name + " " + type + "\n";
  }
  // A line of the metric `name` with one more label, which may be empty.
  void line(const std::string& name, const std::string& label, const std::string& value) {
    const std::string separator = labels_.empty() || label.empty() ? "" : ",";
    const std::string all = labels_ + separator + label;
    text_ += prefix_ + name + (all.empty() ? "" : "{" + all + "}") + " " + value + "\n";
  }
  // Writes a histogram. The upper ends of its buckets are 2^10 ns (about 1 us), 2^12 ns, ..., 2^40
  // ns (about 18 minutes): each is four times the one before.
  void histogram(const std::string& name, const char* help, const WFTimerStats::Lateness& values) {
    head(name.c_str(), "histogram", help);
    histogram_lines(name, values);
  }
  void histogram_lines(const std::string& name, const WFTimerStats::Lateness& values) {
    uint64_t below = 0;
    for (size_t i = 0; i < WFTimerStats::Lateness::kBuckets; i++) {
      below += values.buckets[i];
      const size_t power = (i + 1) / 4;
      if ((i + 1) % 8 == 0 && power >= 10 && power <= 40) {
        const std::string end = seconds(end_of_lateness_bucket(i));
        line(name + "_bucket", "le=\"" + end + "\"", std::to_string(below));
      }
    }
    line(name + "_bucket", "le=\"+Inf\"", std::to_string(values.count));
    line(name + "_sum", {}, seconds(static_cast<double>(values.sum.count())));
    line(name + "_count", {}, std::to_string(values.count));
  }
  std::string take() { return std::move(text_); }

  static std::string seconds(double ns) {
    // Not by printf, which writes a comma where the locale does.
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), ns / 1e9,
                                   std::chars_format::general, 9);
    return std::string(text.data(), end.ptr);
  }

 private:
  const std::string prefix_;
  std::string labels_;
  std::string text_;
};

}  // namespace workflow
