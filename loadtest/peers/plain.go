package peers

import (
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/valyala/fasthttp"
)

// plain is a handler straight on the store.
func (kv *keyValue) plain(ctx *fasthttp.RequestCtx) {
	if string(ctx.Path()) != path {
		ctx.Error("unknown path", fasthttp.StatusBadRequest)
		return
	}
	id := ctx.QueryArgs().Peek("id")
	if len(id) == 0 {
		ctx.Error("no id", fasthttp.StatusBadRequest)
		return
	}
	var err error
	switch {
	case ctx.IsGet():
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		err = kv.get(id, func(value []byte) {
			ctx.SetStatusCode(fasthttp.StatusOK)
			ctx.SetContentType("application/octet-stream")
			ctx.SetBody(value)
		})
	case ctx.IsPut():
		ctx.SetStatusCode(fasthttp.StatusCreated)
		err = kv.put(id, ctx.PostBody())
	case ctx.IsDelete():
		ctx.SetStatusCode(fasthttp.StatusAccepted)
		err = kv.remove(id)
	default:
		ctx.Error("unknown method", fasthttp.StatusMethodNotAllowed)
	}
	if err != nil {
		ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
	}
}

// limited lets a handler have as many requests at once as the limiter has
// learned to be good, and a few wait. The factors are those that its
// documentation names as defaults of queueing, everything else is its default.
func limited(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	limiter := adaptivelimiter.NewBuilder[any]().WithQueueing(2, 3).Build()
	return func(ctx *fasthttp.RequestCtx) {
		permit, err := limiter.AcquirePermit(ctx)
		if err != nil {
			ctx.Error("over the limit", fasthttp.StatusServiceUnavailable)
			return
		}
		next(ctx)
		permit.Record()
	}
}
