package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/client"
)

// connect returns a client of a service that has just been started, for the examples.
func connect() (kv *client.Client, stop func()) {
	url, end := service()
	kv, err := client.New(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return kv, func() {
		kv.Close()
		end()
	}
}

func Example() {
	url, stop := service()
	defer stop()

	kv, err := client.New(url, client.Options{Name: "greeter"})
	if err != nil {
		log.Fatal(err)
	}
	defer kv.Close()

	// The service knows how long this is waited for, and does nothing that comes too late.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := kv.Put(ctx, "greeting", []byte("hello")); err != nil {
		log.Fatal(err)
	}
	entity, err := kv.Get(ctx, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", entity.Value)
	// Output: hello
}

func ExampleClient_Get() {
	kv, stop := connect()
	defer stop()

	_, err := kv.Get(context.Background(), "nothing")
	switch {
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("there is none")
	case errors.Is(err, client.ErrShed), errors.Is(err, client.ErrThrottled):
		fmt.Println("the service is overloaded")
	case err != nil:
		fmt.Println(err)
	}
	// Output: there is none
}

func ExampleClient_GetStream() {
	kv, stop := connect()
	defer stop()
	if _, err := kv.Put(context.Background(), "letter", []byte("Dear reader,\n")); err != nil {
		log.Fatal(err)
	}

	body, meta, err := kv.GetStream(context.Background(), "letter")
	if err != nil {
		log.Fatal(err)
	}
	defer body.Close()
	fmt.Println(meta.Length, "bytes")
	if _, err := io.Copy(os.Stdout, body); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 13 bytes
	// Dear reader,
}

func ExampleClient_Put() {
	kv, stop := connect()
	defer stop()

	_, err := kv.Put(context.Background(), "user/7", []byte("Ada"), client.Priority(1))
	fmt.Println(err)
	// Output: <nil>
}

// A counter that others raise as well: whoever comes second reads again.
func ExampleClient_Put_ifMatch() {
	kv, stop := connect()
	defer stop()
	ctx := context.Background()
	if _, err := kv.Put(ctx, "visits", []byte("41"), client.IfAbsent()); err != nil {
		log.Fatal(err)
	}

	for {
		visits, err := kv.Get(ctx, "visits")
		if err != nil {
			log.Fatal(err)
		}
		n, err := strconv.Atoi(string(visits.Value))
		if err != nil {
			log.Fatal(err)
		}
		_, err = kv.Put(ctx, "visits", []byte(strconv.Itoa(n+1)), client.IfMatch(visits.ETag))
		if errors.Is(err, client.ErrCondition) {
			continue
		}
		fmt.Println(n+1, err)
		break
	}
	// Output: 42 <nil>
}

func ExampleClient_Put_expiry() {
	kv, stop := connect()
	defer stop()
	if _, err := kv.Put(context.Background(), "session/7", []byte("Ada"), client.TTL(time.Hour)); err != nil {
		log.Fatal(err)
	}

	session, err := kv.Stat(context.Background(), "session/7")
	fmt.Println(session.TTL.Round(time.Minute), err)
	// Output: 1h0m0s <nil>
}

func ExampleClient_Get_ifChanged() {
	kv, stop := connect()
	defer stop()
	tag, err := kv.Put(context.Background(), "logo", []byte("a picture"))
	if err != nil {
		log.Fatal(err)
	}

	_, err = kv.Get(context.Background(), "logo", client.IfChanged(tag))
	fmt.Println(errors.Is(err, client.ErrNotModified))
	// Output: true
}

// A proxy that compresses answers weakens their validators. A weak one still tells what has
// changed, but not for If-Match, which asks for the very same bytes.
func ExampleIfMatch_weak() {
	kv, stop := connect()
	defer stop()

	_, err := kv.Put(context.Background(), "logo", []byte("a picture"), client.IfMatch(`W/"3cT8"`))
	fmt.Println(err)
	// Output: client: W/"3cT8" is a weak validator, which If-Match never matches
}

func ExampleClient_Batch() {
	kv, stop := connect()
	defer stop()
	ctx := context.Background()
	if _, err := kv.Put(ctx, "cart/7", []byte("a book")); err != nil {
		log.Fatal(err)
	}
	cart, err := kv.Get(ctx, "cart/7")
	if err != nil {
		log.Fatal(err)
	}

	// Others see the cart or the order, never both, and never neither.
	results, err := kv.Batch(ctx, []client.Op{
		client.PutOp("order/7", cart.Value).IfAbsent(),
		client.DeleteOp("cart/7").IfMatch(cart.ETag),
		client.GetOp("order/7"),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Printf("%d %q\n", r.Status, r.Value)
	}

	_, err = kv.Batch(ctx, []client.Op{client.PutOp("x", nil), client.PutOp("order/7", nil).IfAbsent()})
	var refused *client.Error
	if errors.As(err, &refused) && errors.Is(err, client.ErrCondition) {
		fmt.Println("refused because of operation", refused.Operations[0].Index)
	}
	// Output:
	// 201 ""
	// 202 ""
	// 200 "a book"
	// refused because of operation 1
}

// Both operations may be done twice, so the batch may be sent again when its answer is lost.
func ExampleIdempotencyKey() {
	kv, stop := connect()
	defer stop()

	results, err := kv.Batch(context.Background(), []client.Op{
		client.PutOp("user/7/name", []byte("Ada")),
		client.DeleteOp("user/7/nickname"),
	}, client.IdempotencyKey("8e03978e-40d5-43dd-bc93-6894a57f9324"))
	fmt.Println(len(results), err)
	// Output: 2 <nil>
}

func ExampleClient_Delete_ifMatch() {
	kv, stop := connect()
	defer stop()
	ctx := context.Background()
	tag, err := kv.Put(ctx, "draft", []byte("first"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := kv.Put(ctx, "draft", []byte("second")); err != nil {
		log.Fatal(err)
	}

	err = kv.Delete(ctx, "draft", client.IfMatch(tag))
	fmt.Println(errors.Is(err, client.ErrCondition))
	// Output: true
}

func ExampleClient_PutStream() {
	kv, stop := connect()
	defer stop()

	letter := strings.NewReader("Dear reader,\n") // a file, say
	_, err := kv.PutStream(context.Background(), "letter", letter, letter.Size())
	fmt.Println(err)
	// Output: <nil>
}

func ExampleClient_Stat() {
	kv, stop := connect()
	defer stop()
	if _, err := kv.Put(context.Background(), "letter", []byte("Dear reader,\n")); err != nil {
		log.Fatal(err)
	}

	meta, err := kv.Stat(context.Background(), "letter")
	fmt.Println(meta.Length, err)
	// Output: 13 <nil>
}

func ExampleClient_Delete() {
	kv, stop := connect()
	defer stop()

	// It is no error that there is nothing.
	fmt.Println(kv.Delete(context.Background(), "nothing"))
	// Output: <nil>
}

func ExampleClient_List() {
	kv, stop := connect()
	defer stop()
	for _, user := range []string{"user/1", "user/2", "user/3", "visitor/1"} {
		if _, err := kv.Put(context.Background(), user, []byte("of "+user)); err != nil {
			log.Fatal(err)
		}
	}

	for entry, err := range kv.List(context.Background(), client.Range{Prefix: "user/", Descending: true}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", entry.Key, entry.Value)
	}
	// Output:
	// user/3: of user/3
	// user/2: of user/2
	// user/1: of user/1
}

func ExampleClient_Page() {
	kv, stop := connect()
	defer stop()
	for _, user := range []string{"user/1", "user/2", "user/3"} {
		if _, err := kv.Put(context.Background(), user, nil); err != nil {
			log.Fatal(err)
		}
	}

	page := client.Range{Prefix: "user/", Limit: 2, KeysOnly: true}
	for {
		entries, next, err := kv.Page(context.Background(), page)
		if err != nil {
			log.Fatal(err)
		}
		for _, entry := range entries {
			fmt.Println(entry.Key)
		}
		if next == "" {
			break
		}
		page.After = next
	}
	// Output:
	// user/1
	// user/2
	// user/3
}
