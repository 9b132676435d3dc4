// The HTTP port: routes, and metrics that a Prometheus can read.
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "server/describe.h"
#include "server/metrics.h"
#include "tests/server/server_fixture.h"

namespace serval {
namespace {

namespace asio = boost::asio;

// One request on a connection that is closed after it; the whole response.
std::string Fetch(int port, const std::string& method, const std::string& path) {
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  socket.connect({asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(port)});
  const std::string request =
      method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  asio::write(socket, asio::buffer(request));
  std::string response;
  boost::system::error_code end;
  asio::read(socket, asio::dynamic_buffer(response), end);
  return response;
}

std::string Body(const std::string& response) {
  return response.substr(response.find("\r\n\r\n") + 4);
}

class MetricsTest : public ServerTest {
 protected:
  void StartHttp() {
    auto http = MetricsHttp::Start("127.0.0.1", 0, &frontend_->state());
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
  }
  std::string Get(const std::string& path) { return Fetch(http_->port(), "GET", path); }
  void TearDown() override { http_.reset(); }

  std::unique_ptr<MetricsHttp> http_;
};

TEST_F(MetricsTest, Routes) {
  StartLoading();
  StartHttp();
  EXPECT_TRUE(Get("/health").starts_with("HTTP/1.1 503 "));
  EXPECT_EQ(Body(Get("/health")), "{\"status\":\"loading\"}\n");
  EXPECT_TRUE(Get("/metrics").starts_with("HTTP/1.1 200 "));
  Serve({});
  EXPECT_TRUE(Get("/health").starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(Body(Get("/health?verbose=1")), "{\"status\":\"serving\"}\n");
  EXPECT_EQ(Body(Get("/version")), "{\"version\":\"0.1.0\"}\n");
  EXPECT_TRUE(Get("/nothing").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(Fetch(http_->port(), "POST", "/health").starts_with("HTTP/1.1 405 "));
  const std::string head = Fetch(http_->port(), "HEAD", "/version");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(Body(head), "");
  frontend_->Stop(std::chrono::seconds(1));
  EXPECT_EQ(Body(Get("/health")), "{\"status\":\"draining\"}\n");
}

TEST_F(MetricsTest, TextParses) {
  Start();
  ASSERT_TRUE(Generate(Ask("x", 3)).status.ok());
  ExpectIdle();
  StartHttp();
  const std::string response = Get("/metrics");
  EXPECT_NE(response.find("text/plain; version=0.0.4"), std::string::npos);
  const std::regex sample(
      R"(([a-zA-Z_:][a-zA-Z0-9_:]*)\{([a-z_]+="[^"]*",?)+\} ([-+0-9.e]+|\+Inf|NaN))");
  std::set<std::string> names;
  std::istringstream lines(Body(response));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_NE(line.find("model_name=\"fake\""), std::string::npos) << line;
    names.insert(match[1]);
  }
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "kv_cache_usage_perc",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "num_preemptions_total",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "request_success_total",
                           "time_to_first_token_seconds_bucket",
                           "inter_token_latency_seconds_bucket",
                           "e2e_request_latency_seconds_count",
                           "request_queue_time_seconds_sum",
                           "request_prefill_time_seconds_sum",
                           "request_decode_time_seconds_sum",
                           "iteration_tokens_total_count",
                           "memory_bytes",
                           "cancelled_total",
                           "deadline_exceeded_total",
                           "resident_memory_bytes"}) {
    EXPECT_TRUE(names.contains(std::string("serval:") + name)) << name;
  }
  const std::string text = Body(response);
  EXPECT_NE(text.find("serval:generation_tokens_total{model_name=\"fake\"} 3\n"),
            std::string::npos);
  EXPECT_NE(text.find("serval:memory_bytes{model_name=\"fake\",kind=\"paged\"} 1024\n"),
            std::string::npos);
}

TEST_F(MetricsTest, TakenPortIsAnErrorThatNamesIt) {
  StartLoading();
  StartHttp();
  const auto second = MetricsHttp::Start("127.0.0.1", http_->port(), &frontend_->state());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(std::string(second.status().message()),
            "--port " + std::to_string(http_->port()) +
                ": cannot listen on 127.0.0.1 (Address already in use); choose another port, or 0 "
                "for none");
  EXPECT_FALSE(MetricsHttp::Start("nowhere", 0, &frontend_->state()).ok());
}

TEST(QuantileTest, InterpolatesWithinTheBucket) {
  static constexpr double kBounds[] = {1, 2, 4};
  Histogram histogram(kBounds);
  EXPECT_EQ(Quantile(histogram, 0.5), 0);
  for (const double value : {0.5, 1.5, 1.6, 3.0}) histogram.Observe(value);
  EXPECT_DOUBLE_EQ(Quantile(histogram, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(Quantile(histogram, 1.0), 4);
  histogram.Observe(100);
  EXPECT_DOUBLE_EQ(Quantile(histogram, 1.0), 4);
}

}  // namespace
}  // namespace serval
