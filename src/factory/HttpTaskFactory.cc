#include <utility>

#include "workflow/WFTaskFactory.h"
#include "workflow/detail/HttpClientTask.h"

// The part of WFTaskFactory that makes requests over HTTP.

WFHttpTask* WFTaskFactory::create_http_task(const std::string& url, int redirect_max, int retry_max,
                                            http_callback_t callback) {
  ParsedURI uri;
  URIParser::parse(url, uri);
  return create_http_task(uri, redirect_max, retry_max, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const ParsedURI& uri, int redirect_max, int retry_max,
                                            http_callback_t callback) {
  return new workflow::HttpClientTask(uri, nullptr, redirect_max, retry_max, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const std::string& url, const std::string& proxy_url,
                                            int redirect_max, int retry_max,
                                            http_callback_t callback) {
  ParsedURI uri;
  ParsedURI proxy;
  URIParser::parse(url, uri);
  URIParser::parse(proxy_url, proxy);
  return create_http_task(uri, proxy, redirect_max, retry_max, std::move(callback));
}

WFHttpTask* WFTaskFactory::create_http_task(const ParsedURI& uri, const ParsedURI& proxy,
                                            int redirect_max, int retry_max,
                                            http_callback_t callback) {
  return new workflow::HttpClientTask(uri, &proxy, redirect_max, retry_max, std::move(callback));
}
